/* The transform of whole batches, rows first, then column after column.

   The spectra of a batch are larger than most caches, but a spectrum's seven columns are never needed at the same time.
   So only the rows of pictures, which need all columns, are transformed in a pass of their own, and what lies between
   the passes is half transformed (`halves`). Then column after column is transformed, multiplied and transformed back
   while it is in the cache. */

#ifndef COLUMNS_H
#define COLUMNS_H

#include "products.h"

enum { KERNEL = TAPS * TAPS };

static const float PER_PIXEL = 1.0f / (SIDE * SIDE);

/* Half transformed pictures or kernels, `rows` of each, lie as [column][block of channels][picture][row][two numbers]
   [16]. The 128 bytes beyond a column keep columns from falling into the same cache sets. */
INLINE Size column_size(int rows, Size channels, Size count) { return rows * 2 * channels * count + PAIR; }
INLINE Size halves_size(int rows, Size channels, Size count) { return COLUMNS * column_size(rows, channels, count); }

/* n rows of n pixels, 16 channels. Pixels and rows lie as far apart as is said, and the columns of `half`. */
INLINE void transform_rows(const int n, const float *in, Size pixel, Size row, float *half, Size column)
{
    for (int y = 0; y < n; y++, in += row, half += PAIR)
        for (int part = 0; part < BLOCK; part += WIDTH) {
            Vector a[SIDE], x[SIDE];
            UNROLL for (int i = 0; i < n; i++) a[i] = load(in + i * pixel + part);
            dft14(n, a, x);
            UNROLL for (int i = 0; i < COLUMNS; i++) put(half + i * column + part, x[2 * i], x[2 * i + 1]);
        }
}

/* And back, times 14. */
INLINE void inverse_rows(const int n, const float *half, Size column, float *out, Size pixel, Size row)
{
    for (int y = 0; y < n; y++, out += row, half += PAIR)
        for (int part = 0; part < BLOCK; part += WIDTH) {
            Vector x[SIDE], a[SIDE];
            UNROLL for (int i = 0; i < COLUMNS; i++)
                x[2 * i] = load(half + i * column + part), x[2 * i + 1] = load(half + i * column + part + BLOCK);
            inverse_dft14(n, x, a, 2);
            UNROLL for (int i = 0; i < n; i++) store(out + i * pixel + part, a[i]);
        }
}

/* One column of `count` half transformed pictures, n rows of each, to the 14 slots of its spectrum. */
INLINE void transform_column(const int n, int column, const float *half, Size count, float *out, Size stride)
{
    for (Size i = 0; i < count; i++, half += n * PAIR, out += PAIR)
        for (int part = 0; part < BLOCK; part += WIDTH) {
            Vector first[SIDE], second[SIDE];
            UNROLL for (int y = 0; y < n; y++)
                first[y] = load(half + y * PAIR + part), second[y] = load(half + y * PAIR + part + BLOCK);
            if (column == 0) transform_columns(n, 1, first, second, out + part, stride);
            else transform_columns(n, 0, first, second, out + part, stride);
        }
}

/* And back, times 14. `bias` (or NULL) is added to every pixel: that is what frequency zero does. */
INLINE void inverse_column(const int n, int column, const float *in, Size stride, const float *bias, Size count,
                           float *half)
{
    for (Size i = 0; i < count; i++, half += n * PAIR, in += PAIR)
        for (int part = 0; part < BLOCK; part += WIDTH) {
            Vector slots[2 * SIDE], first[SIDE], second[SIDE];
            UNROLL for (int j = 0; j < SIDE; j++)
                slots[2 * j] = load(in + j * stride + part), slots[2 * j + 1] = load(in + j * stride + part + BLOCK);
            if (column == 0) {
                if (bias) slots[0] += load(bias + part);
                inverse_columns(n, 1, slots, first, second);
            } else
                inverse_columns(n, 0, slots, first, second);
            UNROLL for (int y = 0; y < n; y++) put(half + y * PAIR + part, first[y], second[y]);
        }
}

/* A column of all pictures' spectra, [slot][block of channels][picture]. */
INLINE void picture_column(const int n, int column, const float *halves, float *spectra, Size channels, Size count)
{
    halves += column * column_size(n, channels, count);
    for (Size block = 0; block < channels; block += BLOCK)
        transform_column(n, column, halves + block * count * 2 * n, count, spectra + block * count * 2,
                         slot_stride(channels, count));
}

/* The kernels over 196 as [block of outputs][input][tap][16 outputs], or, where `backward`, [block of inputs][output]
   [tap][16 inputs]: the factor B of a product over input channels, or over output channels. */
static void scale_kernels(const int backward, const float *w, float *scaled, Size inputs, Size outputs)
{
    for (Size output = 0; output < outputs; output += BLOCK)
        for (Size input = 0; input < inputs; input += BLOCK)
            for (int tap = 0; tap < KERNEL; tap++)
                for (int row = 0; row < BLOCK; row++) {
                    const Size pair = backward ? input * outputs / BLOCK + output + row
                                               : output * inputs / BLOCK + input + row;
                    float *to = scaled + (pair * KERNEL + tap) * BLOCK;
                    for (int lane = 0; lane < BLOCK; lane++) {
                        const Size o = output + (backward ? row : lane), i = input + (backward ? lane : row);
                        to[lane] = w[(o * KERNEL + tap) * inputs + i] * PER_PIXEL;
                    }
                }
}

/* One column of the spectra of `count` times 16 kernels. Of the rows' transforms only this column's numbers are used:
   as `column` is a constant, nothing else is computed. */
INLINE void kernels_of_column(const int column, const float *scaled, Size count, float *out, Size stride)
{
    for (Size i = 0; i < count; i++, scaled += KERNEL * BLOCK, out += PAIR)
        for (int part = 0; part < BLOCK; part += WIDTH) {
            Vector first[TAPS], second[TAPS];
            UNROLL for (int y = 0; y < TAPS; y++) {
                Vector a[SIDE], x[SIDE];
                UNROLL for (int t = 0; t < TAPS; t++) a[t] = load(scaled + (y * TAPS + t) * BLOCK + part);
                dft14(TAPS, a, x);
                first[y] = x[2 * column], second[y] = x[2 * column + 1];
            }
            transform_columns(TAPS, column == 0, first, second, out + part, stride);
        }
}

/* A column of the spectra of kernels, [slot][block][other channel]; `pairs` counts blocks times other channels. */
static void kernel_column(int column, const float *scaled, Size pairs, float *spectra, Size stride)
{
    switch (column) {
    case 0: kernels_of_column(0, scaled, pairs, spectra, stride); break;
    case 1: kernels_of_column(1, scaled, pairs, spectra, stride); break;
    case 2: kernels_of_column(2, scaled, pairs, spectra, stride); break;
    case 3: kernels_of_column(3, scaled, pairs, spectra, stride); break;
    case 4: kernels_of_column(4, scaled, pairs, spectra, stride); break;
    case 5: kernels_of_column(5, scaled, pairs, spectra, stride); break;
    case 6: kernels_of_column(6, scaled, pairs, spectra, stride); break;
    }
}

#endif
