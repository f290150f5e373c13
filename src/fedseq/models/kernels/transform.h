/* The discrete Fourier transform (DFT) of real pictures of 14x14 pixels, for 16 channels at once, and its inverse.

   Why 14. A 5x5 convolution of 14x14 pixels has 10x10 outputs, and 10 + 5 - 1 = 14: computed cyclically modulo 14, the
   convolution, the gradient of its input and the gradient of its kernel all wrap around only where nobody looks or
   where there are zeros. With the spectra X^, W^, Y^ of picture, kernel and output (sums over channels left out),

       y[p] = sum over t of x[p + t] w[t]         Y^ = X^ conj(W^)
       dx[q] = sum over t of dy[q - t] w[t]       dX^ = dY^ W^
       dw[t] = sum over p of x[p + t] dy[p]       dW^ = X^ conj(dY^)

   A real 14x14 picture has 4 real frequencies and 96 complex ones, not counting conjugates: 4 + 96 * 4 = 388
   multiplications for each pair of channels, where the direct way takes 10 * 10 * 25 = 2500.

   One dimension. 14 = 2 * 7, and as 2 and 7 have no common factor, n = 2i + 7j (mod 14) numbers the inputs by i < 7 and
   j < 2 so that exp(2 pi I n k / 14) = (-1)^(jk) exp(2 pi I i k / 7) (Good and Thomas). So the even frequencies are the
   DFT of length 7 of the sums a[2i] + a[2i + 7], the odd ones that of the differences, and no factors stand between
   them. A DFT of length 7 of real numbers is three cosine and three sine sums over b[i] + b[7 - i] and b[i] - b[7 - i].
   Its frequencies are left in the order in which they come: they are only ever multiplied with their like.

   Two dimensions. The rows' transforms give 2 real columns and 6 complex ones. A complex column R + I i is two real
   transforms R^ and I^; at a frequency and its opposite it is R^ + i I^ and conj(R^) + i conj(I^).

   A spectrum is 98 slots of 2 x 16 numbers. Slots 0 and 1 hold four real frequencies, the others a complex one each as
   real part | imaginary part. Slots lie `stride` apart, so that those of many pictures can lie interleaved. */

#ifndef TRANSFORM_H
#define TRANSFORM_H

#include "vectors.h"

enum { SIDE = 14, OUTPUTS = 10, TAPS = 5, SLOTS = 98, REAL_SLOTS = 2, PAIR = 2 * BLOCK, COLUMNS = SIDE / 2 };

/* Cosines and sines of 2 pi / 7, 4 pi / 7 and 6 pi / 7. */
#define C1 0.62348980185873353053f
#define C2 -0.22252093395631440429f
#define C3 -0.90096886790241912624f
#define S1 0.78183148246802980871f
#define S2 0.97492791218182360702f
#define S3 0.43388373911755812048f

/* Seven real numbers to their sum and three complex frequencies. */
INLINE void dft7(const Vector *b, Vector *sum, Vector *x)
{
    Vector p1 = b[1] + b[6], p2 = b[2] + b[5], p3 = b[3] + b[4];
    Vector m1 = b[1] - b[6], m2 = b[2] - b[5], m3 = b[3] - b[4];
    *sum = b[0] + (p1 + p2 + p3);
    x[0] = madd(all(C3), p3, madd(all(C2), p2, madd(all(C1), p1, b[0])));
    x[2] = madd(all(C1), p3, madd(all(C3), p2, madd(all(C2), p1, b[0])));
    x[4] = madd(all(C2), p3, madd(all(C1), p2, madd(all(C3), p1, b[0])));
    x[1] = madd(all(S3), m3, madd(all(S2), m2, all(S1) * m1));
    x[3] = nmadd(all(S1), m3, nmadd(all(S3), m2, all(S2) * m1));
    x[5] = madd(all(S2), m3, nmadd(all(S1), m2, all(S3) * m1));
}

/* The inverse, times 7. Each complex frequency stands for two, its conjugate being the other: `twice` is 2, or 1 where
   they come doubled already. */
INLINE void inverse_dft7(Vector sum, const Vector *x, Vector *b, const float twice)
{
    const Vector c1 = all(twice * C1), c2 = all(twice * C2), c3 = all(twice * C3);
    const Vector s1 = all(twice * S1), s2 = all(twice * S2), s3 = all(twice * S3);
    Vector p1 = madd(c3, x[4], madd(c2, x[2], madd(c1, x[0], sum)));
    Vector p2 = madd(c1, x[4], madd(c3, x[2], madd(c2, x[0], sum)));
    Vector p3 = madd(c2, x[4], madd(c1, x[2], madd(c3, x[0], sum)));
    Vector m1 = madd(s3, x[5], madd(s2, x[3], s1 * x[1]));
    Vector m2 = nmadd(s1, x[5], nmadd(s3, x[3], s2 * x[1]));
    Vector m3 = madd(s2, x[5], nmadd(s1, x[3], s3 * x[1]));
    b[0] = madd(all(twice), x[0] + x[2] + x[4], sum);
    b[1] = p1 + m1, b[2] = p2 + m2, b[3] = p3 + m3;
    b[6] = p1 - m1, b[5] = p2 - m2, b[4] = p3 - m3;
}

/* Fourteen real numbers, of which those from n on are zero, to two real frequencies (0 and 7) and six complex ones. */
INLINE void dft14(const int n, const Vector *a, Vector *x)
{
    Vector sums[7], differences[7];
    UNROLL for (int i = 0; i < 7; i++) {
        const int p = 2 * i, q = (2 * i + 7) % 14;
        const Vector zero = {0};
        sums[i] = p < n && q < n ? a[p] + a[q] : p < n ? a[p] : q < n ? a[q] : zero;
        differences[i] = p < n && q < n ? a[p] - a[q] : p < n ? a[p] : q < n ? -a[q] : zero;
    }
    dft7(sums, x, x + 2);
    dft7(differences, x + 1, x + 8);
}

/* The first n numbers of the inverse, times 14. */
INLINE void inverse_dft14(const int n, const Vector *x, Vector *a, const float twice)
{
    Vector sums[7], differences[7];
    inverse_dft7(x[0], x + 2, sums, twice);
    inverse_dft7(x[1], x + 8, differences, twice);
    UNROLL for (int i = 0; i < 7; i++) {
        const int p = 2 * i, q = (2 * i + 7) % 14;
        if (p < n) a[p] = sums[i] + differences[i];
        if (q < n) a[q] = sums[i] - differences[i];
    }
}

INLINE void put(float *slot, Vector first, Vector second) { store(slot, first), store(slot + BLOCK, second); }

/* Two columns of the rows' transforms to 14 slots: the two real ones, or the parts of a complex one. */
INLINE void transform_columns(const int n, const int real, const Vector *first, const Vector *second, float *out,
                              Size stride)
{
    Vector r[SIDE], i[SIDE];
    dft14(n, first, r);
    dft14(n, second, i);
    if (real) {
        put(out, r[0], r[1]);
        put(out + stride, i[0], i[1]);
        UNROLL for (int j = 2; j < SIDE; j += 2) {
            put(out + (j / 2 + 1) * stride, r[j], r[j + 1]);
            put(out + (j / 2 + 7) * stride, i[j], i[j + 1]);
        }
    } else {
        put(out, r[0], i[0]);
        put(out + stride, r[1], i[1]);
        UNROLL for (int j = 2; j < SIDE; j += 2) {
            put(out + j * stride, r[j] - i[j + 1], r[j + 1] + i[j]);
            put(out + (j + 1) * stride, r[j] + i[j + 1], i[j] - r[j + 1]);
        }
    }
}

/* And back: of 14 slots' numbers (2j and 2j + 1 are those of slot j) the first n numbers of both columns, times 14. */
INLINE void inverse_columns(const int n, const int real, const Vector *slots, Vector *first, Vector *second)
{
    Vector r[SIDE], i[SIDE];
    if (real) {
        r[0] = slots[0], r[1] = slots[1], i[0] = slots[2], i[1] = slots[3];
        UNROLL for (int j = 2; j < SIDE; j++) r[j] = slots[j + 2], i[j] = slots[j + 14];
        inverse_dft14(n, r, first, 2);
        inverse_dft14(n, i, second, 2);
    } else {
        r[0] = slots[0], i[0] = slots[1], r[1] = slots[2], i[1] = slots[3];
        UNROLL for (int j = 2; j < SIDE; j += 2) {
            Vector ar = slots[2 * j], ai = slots[2 * j + 1], br = slots[2 * j + 2], bi = slots[2 * j + 3];
            r[j] = ar + br, r[j + 1] = ai - bi, i[j] = ai + bi, i[j + 1] = br - ar;
        }
        inverse_dft14(n, r, first, 1);
        inverse_dft14(n, i, second, 1);
    }
}

#endif
