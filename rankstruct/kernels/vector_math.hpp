// Functions that a loop over neighbours in memory takes by vector instructions: polynomials, no branches and no tables.
#pragma once

#include "elementary.hpp"

namespace rankstruct {

// 2 artanh(f) for f in [0, 1/3], which at f = z / (2 + z) is log(1 + z) for z in [0, 1]: f times a polynomial in f^2, near the
// best one of its degree. To a relative 4e-9 in float32, where that is not seen, and 2e-15 in float64.
KERNEL inline float two_artanh(float f) {
    const float s = f * f;
    return f * ((((0.2815778f * s + 0.27965158f) * s + 0.40024596f) * s + 0.6666632f) * s + 2.0f);
}

KERNEL inline double two_artanh(double f) {
    const double s = f * f;
    double p = 0.18758019601047687;
    p = p * s + 0.11744977819559474;
    p = p * s + 0.1557070720148144;
    p = p * s + 0.18169333991893807;
    p = p * s + 0.22222709754719172;
    p = p * s + 0.2857141793475505;
    p = p * s + 0.4000000011581452;
    p = p * s + 0.6666666666618257;
    p = p * s + 2.000000000000003;
    return f * p;
}

// exp(x) for x below 700; what is below -700 counts as that, 1e-304.
KERNEL inline double low_exp(double x) { return near_exp(most(x, -700.0)); }

// Of a standard normal variable: the chance that it is more than sqrt(2) z, erfc(z) / 2, and its density there over that at 0,
// exp(-z^2); z >= 0, and beyond 26 it counts as that.
struct NormalTail {
    double chance, bell;
};

// erfc(z) / 2 = t p(2 t - 1) exp(-z^2) with t = 4 / (4 + z) and p a polynomial near the best one of its degree: to a relative
// 4e-14, and as much as z^2 is rounded.
KERNEL inline NormalTail normal_tail(double z) {
    const double t = 4.0 / (4.0 + z), u = 2.0 * t - 1.0, bell = low_exp(-z * z);
    double p = 8.217827669736855e-09;
    p = p * u + 8.573555959811915e-09;
    p = p * u - 9.255925185412716e-08;
    p = p * u - 1.7598753820348912e-07;
    p = p * u + 5.731375794006315e-07;
    p = p * u + 2.3552007580941777e-06;
    p = p * u - 4.458208833244042e-07;
    p = p * u - 2.209996335724822e-05;
    p = p * u - 5.688487792133773e-05;
    p = p * u + 3.5119196052307615e-05;
    p = p * u + 0.000764007705217781;
    p = p * u + 0.0032962568230996657;
    p = p * u + 0.009547689271059192;
    p = p * u + 0.02175136713532511;
    p = p * u + 0.041356448489982156;
    p = p * u + 0.06760672891527922;
    p = p * u + 0.09665108778306768;
    p = p * u + 0.12206859113509146;
    p = p * u + 0.13699945762506138;
    return {t * p * bell, bell};
}

KERNEL inline float square_root(float value) { return sqrtf(value); }
KERNEL inline double square_root(double value) { return sqrt(value); }
KERNEL inline float absolute(float value) { return fabsf(value); }
KERNEL inline double absolute(double value) { return fabs(value); }

// The sum of neighbours in memory, in as many parts as vector registers hold.
template <class Real>
KERNEL inline Real sum_of_row(const Real* values, Index count) {
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
