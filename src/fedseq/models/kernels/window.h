/* Max-pooling over 2x2 pixels, then ReLU, of 16 channels: the rules of pool.c, for numbers that were just computed. */

#ifndef WINDOW_H
#define WINDOW_H

#include "vectors.h"

enum { BLOCKED = 4 }; /* ReLU lets no gradient through; smaller codes say which of the window's pixels won */

typedef int32_t Mask __attribute__((vector_size(4 * WIDTH))); /* all bits of a lane, or none */
typedef uint8_t Codes __attribute__((vector_size(WIDTH)));
typedef uint8_t UnalignedCodes __attribute__((vector_size(WIDTH), aligned(1), may_alias));

INLINE Vector pick(Mask mask, Vector yes, Vector no) { return (Vector)((mask & (Mask)yes) | (~mask & (Mask)no)); }
INLINE Mask wins(Vector number, Vector best) { return (number > best) | (number != number); }

/* The window's rows lie `row` floats apart, its pixels BLOCK floats. Of equal numbers the first wins, a NaN always. */
INLINE void pool_window(const float *in, Size row, float *out, uint8_t *codes)
{
    UNROLL for (int part = 0; part < BLOCK; part += WIDTH, in += WIDTH) {
        const Vector a = load(in), b = load(in + BLOCK), c = load(in + row), d = load(in + row + BLOCK);
        const Mask right = wins(b, a), right_below = wins(d, c);
        const Vector above = pick(right, b, a), below = pick(right_below, d, c);
        const Mask lower = wins(below, above);
        const Vector best = pick(lower, below, above);
        const Mask code = (lower & (2 - right_below)) | (~lower & -right), blocked = best <= 0;
        *(UnalignedCodes *)(codes + part) = __builtin_convertvector((blocked & BLOCKED) | (~blocked & code), Codes);
        store(out + part, (Vector)(~(best < 0) & (Mask)best));
    }
}

/* What comes through to the window's four pixels. */
INLINE void spread_window(const float *above, const uint8_t *codes, float *gradient, Size row)
{
    UNROLL for (int part = 0; part < BLOCK; part += WIDTH, gradient += WIDTH) {
        const Mask code = __builtin_convertvector((Codes)*(const UnalignedCodes *)(codes + part), Mask);
        const Mask numbers = (Mask)load(above + part);
        store(gradient, (Vector)(numbers & (code == 0)));
        store(gradient + BLOCK, (Vector)(numbers & (code == 1)));
        store(gradient + row, (Vector)(numbers & (code == 2)));
        store(gradient + row + BLOCK, (Vector)(numbers & (code == 3)));
    }
}

#endif
