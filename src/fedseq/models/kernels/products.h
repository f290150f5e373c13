/* Products of spectra, summed over channels or pictures, slot by slot: small matrix products of complex numbers.

   A spectrum of many pictures with many channels (or of many kernels) lies as [slot][block of 16 channels][picture]
   [real | imaginary][16]. In one slot, A's rows are pictures and its columns channels, or the other way round: both can
   be read as they lie, so nothing is ever packed or transposed. Each sum is added up in order by one lane of one
   accumulator, however rows are divided among tiles: a row's result does not depend on what other rows there are. */

#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "transform.h"

enum Rule { PLAIN, CONJUGATE_A, CONJUGATE_B, REALS };

/* Six rows' two accumulators, a row of B and a number of A fill the 16 registers of AVX2. */
enum { ROWS = 6 };

/* Floats from slot to slot; the 128 bytes beyond what is there keep slots from falling into the same cache sets. */
INLINE Size slot_stride(Size channels, Size count) { return 2 * channels * count + PAIR; }

INLINE void add_product(const enum Rule rule, float a_real, float a_imaginary, Vector b_real, Vector b_imaginary,
                        Vector *real, Vector *imaginary)
{
    const Vector ar = all(a_real), ai = all(a_imaginary);
    if (rule == REALS) {
        *real = madd(ar, b_real, *real);
        *imaginary = madd(ai, b_imaginary, *imaginary);
        return;
    }
    *real = madd(ar, b_real, *real);
    *imaginary = rule == CONJUGATE_B ? nmadd(ar, b_imaginary, *imaginary) : madd(ar, b_imaginary, *imaginary);
    *real = rule == PLAIN ? nmadd(ai, b_imaginary, *real) : madd(ai, b_imaginary, *real);
    *imaginary = rule == CONJUGATE_A ? nmadd(ai, b_real, *imaginary) : madd(ai, b_real, *imaginary);
}

/* `rows` rows of the product with a vector of B's columns. A's rows are pictures and `depth` counts its channels; or,
   where `by_channel`, its rows are channels and `depth` counts pictures. */
INLINE void product_tile(const int rows, const int by_channel, const enum Rule rule, const float *a, Size a_block,
                         const float *b, float *c, Size depth)
{
    Vector real[ROWS], imaginary[ROWS];
    UNROLL for (int r = 0; r < rows; r++) real[r] = imaginary[r] = (Vector){0};
    if (by_channel)
        for (Size k = 0; k < depth; k++, a += PAIR, b += PAIR) {
            Vector br = load(b), bi = load(b + BLOCK);
            UNROLL for (int r = 0; r < rows; r++)
                add_product(rule, a[r], a[r + BLOCK], br, bi, real + r, imaginary + r);
        }
    else
        for (Size block = 0; block < depth; block += BLOCK, a += a_block)
            for (int k = 0; k < BLOCK; k++, b += PAIR) {
                Vector br = load(b), bi = load(b + BLOCK);
                UNROLL for (int r = 0; r < rows; r++)
                    add_product(rule, a[r * PAIR + k], a[r * PAIR + BLOCK + k], br, bi, real + r, imaginary + r);
            }
    UNROLL for (int r = 0; r < rows; r++) store(c + r * PAIR, real[r]), store(c + r * PAIR + BLOCK, imaginary[r]);
}

/* C [block of n][m] = A B with B [block of n][depth]. A is [block of depth][m], or [block of m][depth] where
   `by_channel`; its m channels are then divided into tiles of 6 + 5 + 5. */
INLINE void product(const int by_channel, const enum Rule rule, const float *a, const float *b, float *c, Size m,
                    Size n, Size depth)
{
    for (Size column = 0; column < n; column += BLOCK, b += depth * PAIR, c += m * PAIR)
        for (int part = 0; part < BLOCK; part += WIDTH) {
            const float *left = a, *right = b + part;
            float *to = c + part;
            if (by_channel) {
                for (Size row = 0; row < m; row += BLOCK, left += depth * PAIR, to += BLOCK * PAIR) {
                    product_tile(6, 1, rule, left, 0, right, to, depth);
                    product_tile(5, 1, rule, left + 6, 0, right, to + 6 * PAIR, depth);
                    product_tile(5, 1, rule, left + 11, 0, right, to + 11 * PAIR, depth);
                }
                continue;
            }
            Size row = 0, block = m * PAIR;
            for (; row + ROWS <= m; row += ROWS, left += ROWS * PAIR, to += ROWS * PAIR)
                product_tile(ROWS, 0, rule, left, block, right, to, depth);
            switch (m - row) {
            case 5: product_tile(5, 0, rule, left, block, right, to, depth); break;
            case 4: product_tile(4, 0, rule, left, block, right, to, depth); break;
            case 3: product_tile(3, 0, rule, left, block, right, to, depth); break;
            case 2: product_tile(2, 0, rule, left, block, right, to, depth); break;
            case 1: product_tile(1, 0, rule, left, block, right, to, depth); break;
            }
        }
}

/* The same for the slots of one column of the spectra, which lie as far apart as is said. */
INLINE void products(const int by_channel, const enum Rule rule, int column, const float *a, Size a_stride,
                     const float *b, Size b_stride, float *c, Size c_stride, Size m, Size n, Size depth)
{
    for (int slot = 0; slot < SIDE; slot++, a += a_stride, b += b_stride, c += c_stride)
        if (column == 0 && slot < REAL_SLOTS) product(by_channel, REALS, a, b, c, m, n, depth);
        else product(by_channel, rule, a, b, c, m, n, depth);
}

#endif
