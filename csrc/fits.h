/* fits.h: coefficients of fits, for C and for kernels as texts. Not installed.
 *
 * FIRST(c) is p = c, STEP(c) the next step of Horner's scheme, p = p * t c, where c begins with its sign. */
#ifndef VB_FITS_H
#define VB_FITS_H

/* erfc(z) = t exp(-z^2 + P(t)) with t = 1 / (1 + z / 2), for z >= 0: to 1.2e-7 of itself, also where it is tiny.
 * P is the Chebyshev fit of Numerical Recipes ("erfcc", Press et al., 2nd ed., 6.2). */
#define VB_ERFC_FIT(FIRST, STEP)                                                                                       \
    FIRST(0.17087277)                                                                                                  \
    STEP(- 0.82215223)                                                                                                 \
    STEP(+ 1.48851587)                                                                                                 \
    STEP(- 1.13520398)                                                                                                 \
    STEP(+ 0.27886807)                                                                                                 \
    STEP(- 0.18628806)                                                                                                 \
    STEP(+ 0.09678418)                                                                                                 \
    STEP(+ 0.37409196)                                                                                                 \
    STEP(+ 1.00002368)                                                                                                 \
    STEP(- 1.26551223)

#endif
