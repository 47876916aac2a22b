// exp and log as plain arithmetic, which vector instructions take several numbers of at a time. Right to two units of the last
// place.
#pragma once

#include "base.hpp"

namespace rankstruct {

// ln 2 in two parts, of which the first has few enough bits that its product with a whole number is exact.
constexpr double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;

// exp(x) for x in [-700, 700]: 2^k times the series of exp of what is left, at most ln(2) / 2.
[[gnu::always_inline]] KERNEL inline double near_exp(double x) {
    constexpr double whole = 6755399441055744.0;  // 1.5 x 2^52: rounds what is added to a whole number, in its last bits
    const double shifted = x * 1.44269504088896340736 + whole;
    const double k = shifted - whole;
    const double r = (x - k * LN2_HIGH) - k * LN2_LOW, square = r * r;
    // The series in two halves, the even and the odd powers.
    double even = 1.0 / 479001600.0, odd = 1.0 / 6227020800.0;
    even = even * square + 1.0 / 3628800.0;
    odd = odd * square + 1.0 / 39916800.0;
    even = even * square + 1.0 / 40320.0;
    odd = odd * square + 1.0 / 362880.0;
    even = even * square + 1.0 / 720.0;
    odd = odd * square + 1.0 / 5040.0;
    even = even * square + 1.0 / 24.0;
    odd = odd * square + 1.0 / 120.0;
    even = even * square + 0.5;
    odd = odd * square + 1.0 / 6.0;
    const double series = 1.0 + (r + square * (even + r * odd));
    return series * __builtin_bit_cast(double, (__builtin_bit_cast(Bits64, shifted) + 1023) << 52);
}

// log(x) for normal x > 0: x = 2^k m with m in [sqrt(1/2), sqrt(2)), and log(m) = 2 artanh(s), s = (m - 1) / (m + 1).
[[gnu::always_inline]] KERNEL inline double near_log(double x) {
    constexpr Bits64 root = 0x3fe6a09e667f3bcdull, exponent = 0x7ff0000000000000ull, two_to_52 = 0x4330000000000000ull;
    const Bits64 bits = __builtin_bit_cast(Bits64, x), from_root = bits - root + (1023ull << 52);
    const double k = __builtin_bit_cast(double, (from_root >> 52) | two_to_52) - (4503599627370496.0 + 1023.0);
    const double f = __builtin_bit_cast(double, bits - (from_root & exponent) + (1023ull << 52)) - 1.0;
    const double s = f / (2.0 + f), square = s * s;
    double series = 1.0 / 21.0;
    series = series * square + 1.0 / 19.0;
    series = series * square + 1.0 / 17.0;
    series = series * square + 1.0 / 15.0;
    series = series * square + 1.0 / 13.0;
    series = series * square + 1.0 / 11.0;
    series = series * square + 1.0 / 9.0;
    series = series * square + 1.0 / 7.0;
    series = series * square + 1.0 / 5.0;
    series = series * square + 1.0 / 3.0;
    // 2 s = f - s f, of which f is exact.
    return k * LN2_HIGH + (f + (k * LN2_LOW - s * (f - 2.0 * square * series)));
}

}  // namespace rankstruct
