// Functions for vectorised loops: polynomials, without branches or tables.
#pragma once

#include "base.hpp"

namespace rankstruct {

// A polynomial of x by Horner's rule, its highest coefficient first.
template <class... Lower>
[[gnu::always_inline]] inline double polynomial(double x, double highest, Lower... lower) {
    ((highest = highest * x + lower), ...);
    return highest;
}

// ln 2 in two parts; the first has so few bits that its product with an integer is exact.
constexpr double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;

// exp(x) for x in [-700, 700], to two units in the last place: 2^k times the series of exp of the remainder, at most ln(2) / 2.
[[gnu::always_inline]] inline double near_exp(double x) {
    constexpr double whole = 6755399441055744.0;  // 1.5 x 2^52: adding it rounds to an integer, in the last bits
    const double shifted = x * 1.44269504088896340736 + whole;
    const double k = shifted - whole;
    const double r = (x - k * LN2_HIGH) - k * LN2_LOW, square = r * r;
    // The series in two halves, even and odd powers.
    const double even = polynomial(square, 1.0 / 479001600.0, 1.0 / 3628800.0, 1.0 / 40320.0, 1.0 / 720.0, 1.0 / 24.0, 0.5);
    const double odd = polynomial(square, 1.0 / 6227020800.0, 1.0 / 39916800.0, 1.0 / 362880.0, 1.0 / 5040.0, 1.0 / 120.0,
                                  1.0 / 6.0);
    const double series = 1.0 + (r + square * (even + r * odd));
    return series * __builtin_bit_cast(double, (__builtin_bit_cast(Bits64, shifted) + 1023) << 52);
}

// log(x) for normal x > 0, to the same precision: x = 2^k m with m in [sqrt(1/2), sqrt(2)), and log(m) = 2 artanh(s), s = (m - 1)
// / (m + 1).
[[gnu::always_inline]] inline double near_log(double x) {
    constexpr Bits64 root = 0x3fe6a09e667f3bcdull, exponent = 0x7ff0000000000000ull, two_to_52 = 0x4330000000000000ull;
    const Bits64 bits = __builtin_bit_cast(Bits64, x), from_root = bits - root + (1023ull << 52);
    const double k = __builtin_bit_cast(double, (from_root >> 52) | two_to_52) - (4503599627370496.0 + 1023.0);
    const double f = __builtin_bit_cast(double, bits - (from_root & exponent) + (1023ull << 52)) - 1.0;
    const double s = f / (2.0 + f), square = s * s;
    const double series = polynomial(square, 1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0,
                                     1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0);
    // 2 s = f - s f, where f is exact.
    return k * LN2_HIGH + (f + (k * LN2_LOW - s * (f - 2.0 * square * series)));
}

// 2 artanh(f) for f in [0, 1/3], which for f = z / (2 + z) is log(1 + z) with z in [0, 1]: f times a polynomial in f^2, near the
// minimax one. Relative error 4e-9 in float32, which is below its precision, and 2e-15 in float64.
inline float two_artanh(float f) {
    const float s = f * f;
    return f * ((((0.2815778f * s + 0.27965158f) * s + 0.40024596f) * s + 0.6666632f) * s + 2.0f);
}

inline double two_artanh(double f) {
    return f * polynomial(f * f, 0.18758019601047687, 0.11744977819559474, 0.1557070720148144, 0.18169333991893807,
                          0.22222709754719172, 0.2857141793475505, 0.4000000011581452, 0.6666666666618257, 2.000000000000003);
}

// exp(x) for x below 700; smaller values than -700 are treated as -700, which gives 1e-304.
inline double low_exp(double x) { return near_exp(most(x, -700.0)); }

// For a standard normal variable: the probability of exceeding sqrt(2) z, erfc(z) / 2, and its density there relative to that at
// 0, exp(-z^2); z >= 0, and values above 26 are treated as 26.
struct NormalTail {
    double chance, bell;
};

// erfc(z) / 2 = t p(2 t - 1) exp(-z^2) with t = 4 / (4 + z) and p a polynomial near the minimax one: relative error 4e-14, plus
// the rounding of z^2.
inline NormalTail normal_tail(double z) {
    const double t = 4.0 / (4.0 + z), u = 2.0 * t - 1.0, bell = low_exp(-z * z);
    const double p = polynomial(u, 8.217827669736855e-09, 8.573555959811915e-09, -9.255925185412716e-08,
                                -1.7598753820348912e-07, 5.731375794006315e-07, 2.3552007580941777e-06,
                                -4.458208833244042e-07, -2.209996335724822e-05, -5.688487792133773e-05,
                                3.5119196052307615e-05, 0.000764007705217781, 0.0032962568230996657, 0.009547689271059192,
                                0.02175136713532511, 0.041356448489982156, 0.06760672891527922, 0.09665108778306768,
                                0.12206859113509146, 0.13699945762506138);
    return {t * p * bell, bell};
}

// The sum of an array, in as many parts as fit vector registers.
template <class Real>
inline Real sum_of_row(const Real* values, Index count) {
    constexpr int parts = 16;
    Real part[parts] = {};
    Index i = 0;
    for (; i + parts <= count; i += parts)
        for (int l = 0; l < parts; ++l) part[l] += values[i + l];
    Real total = 0;
    for (; i < count; ++i) total += values[i];
    for (int l = 0; l < parts; ++l) total += part[l];
    return total;
}

}  // namespace rankstruct
