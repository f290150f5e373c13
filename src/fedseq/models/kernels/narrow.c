/* A first layer: 5x5 convolution of pictures with one or three channels and any size, max-pooling over 2x2, ReLU.

   Pictures lie channels-last, kernels as [output channel][5][5][input channel]; output channels are a multiple of 16.

   Forward. The picture is cut into tiles of 14x14 pixels which overlap by four, so that each has 10x10 outputs of its
   own (overlap-save; see transform.h). There are too few input channels to fill a vector, so those of several tiles
   share one transform. Its columns are multiplied with those of the kernels and go back at once.

   The gradients are in winners.c. */

#include "layers.h"
#include "transform.h"
#include "window.h"

/* Five tiles of three channels fill 15 lanes; two such transforms share each load of the kernels. */
enum { KERNEL = TAPS * TAPS, LANES = 5, TILES = 2 * LANES, STEP = OUTPUTS / 2 };

static const float PER_PIXEL = 1.0f / (SIDE * SIDE);

/* Transform of one block of channels: all columns' slots one after the other. */
INLINE void transform(const int n, const float in[][SIDE][BLOCK], float *out, Size stride)
{
    for (int part = 0; part < PARTS; part++) {
        Vector half[SIDE][SIDE];
        for (int y = 0; y < n; y++) {
            Vector a[SIDE], x[SIDE];
            UNROLL for (int i = 0; i < n; i++) a[i] = load(in[y][i] + part * WIDTH);
            dft14(n, a, x);
            UNROLL for (int i = 0; i < SIDE; i++) half[i][y] = x[i];
        }
        float *to = out + part * WIDTH;
        transform_columns(n, 1, half[0], half[1], to, stride);
        for (int column = 1; column < COLUMNS; column++)
            transform_columns(n, 0, half[2 * column], half[2 * column + 1], to + column * SIDE * stride, stride);
    }
}

/* Spectra of the kernels over 196, [block of outputs][slot][channel]. */
void narrow_kernels(const float *w, float *spectra, const Layer *layer)
{
    const Size channels = layer->inputs;
    for (Size block = 0; block < layer->outputs; block += BLOCK)
        for (Size c = 0; c < channels; c++) {
            float taps[TAPS][SIDE][BLOCK];
            for (int tap = 0; tap < KERNEL; tap++)
                for (int o = 0; o < BLOCK; o++)
                    taps[tap / TAPS][tap % TAPS][o] = w[((block + o) * KERNEL + tap) * channels + c] * PER_PIXEL;
            transform(TAPS, taps, spectra + (block * SLOTS * channels / BLOCK + c) * PAIR, channels * PAIR);
        }
}

/* Some tiles' pixels, a tile's channels beside the other's; zeros beyond the picture and in lanes of no tile. */
static void gather(const float *picture, Size first, Size tiles, Size across, float patch[][SIDE][BLOCK],
                   const Layer *layer)
{
    const Size channels = layer->inputs;
    memset(patch, 0, SIDE * SIDE * BLOCK * sizeof(float));
    for (Size t = 0; t < tiles; t++) {
        const Size top = (first + t) / across * OUTPUTS, left = (first + t) % across * OUTPUTS;
        const Size rows = layer->height - top < SIDE ? layer->height - top : SIDE;
        const Size columns = layer->width - left < SIDE ? layer->width - left : SIDE;
        for (Size y = 0; y < rows; y++) {
            const float *from = picture + ((top + y) * layer->width + left) * channels;
            for (Size x = 0; x < columns; x++)
                for (Size c = 0; c < channels; c++) patch[y][x][t * channels + c] = *from++;
        }
    }
}

/* One tile's outputs, half transformed: two columns of the sum over channels of its spectrum times the kernels'. */
INLINE void multiply_columns(const int channels, const int real, const float *kernels, const float *spectrum,
                             Vector bias, Vector *half)
{
    Vector slots[2 * SIDE], first[SIDE], second[SIDE];
    UNROLL for (int j = 0; j < SIDE; j++) {
        Vector re = real && j == 0 ? bias : (Vector){0}, im = {0}; /* frequency zero adds to every pixel */
        UNROLL for (int c = 0; c < channels; c++) {
            const float *kernel = kernels + (j * channels + c) * PAIR, *tile = spectrum + j * PAIR + c;
            const Vector wr = load(kernel), wi = load(kernel + BLOCK), xr = all(tile[0]), xi = all(tile[BLOCK]);
            if (real && j < REAL_SLOTS)
                re = madd(xr, wr, re), im = madd(xi, wi, im);
            else /* times the conjugate */
                re = madd(xi, wi, madd(xr, wr, re)), im = nmadd(xr, wi, madd(xi, wr, im));
        }
        slots[2 * j] = re, slots[2 * j + 1] = im;
    }
    inverse_columns(OUTPUTS, real, slots, first, second);
    UNROLL for (int y = 0; y < OUTPUTS; y++) half[2 * y] = first[y], half[2 * y + 1] = second[y];
}

/* One picture's outputs, pooled, and codes. */
INLINE void picture_forward(const int channels, const float *picture, const float *kernels, const float *bias, float *y,
                            uint8_t *codes, const Layer *layer)
{
    const Size across = (layer->wide + STEP - 1) / STEP, tiles = (layer->tall + STEP - 1) / STEP * across;
    const Size column_size = SIDE * channels * PAIR, outputs = layer->outputs;
    for (Size start = 0; start < tiles; start += TILES) {
        const Size some = tiles - start < TILES ? tiles - start : TILES;
        float spectra[TILES / LANES][SLOTS * PAIR];
        for (Size t = 0; t < some; t += LANES) {
            float patch[SIDE][SIDE][BLOCK];
            gather(picture, start + t, some - t < LANES ? some - t : LANES, across, patch, layer);
            transform(SIDE, patch, spectra[t / LANES], PAIR);
        }
        for (Size block = 0; block < outputs; block += BLOCK) {
            Vector half[COLUMNS][TILES][PARTS][2 * OUTPUTS];
            const float *kernel = kernels + block * SLOTS * channels * 2;
            for (int column = 0; column < COLUMNS; column++, kernel += column_size)
                for (Size t = 0; t < some; t++)
                    for (int part = 0; part < PARTS; part++) {
                        const float *from = spectra[t / LANES] + column * SIDE * PAIR + t % LANES * channels;
                        const Vector b = load(bias + block + part * WIDTH);
                        Vector *to = half[column][t][part];
                        if (column == 0) multiply_columns(channels, 1, kernel + part * WIDTH, from, b, to);
                        else multiply_columns(channels, 0, kernel + part * WIDTH, from, b, to);
                    }
            for (Size t = 0; t < some; t++) {
                float full[OUTPUTS][OUTPUTS][BLOCK];
                for (int row = 0; row < OUTPUTS; row++)
                    for (int part = 0; part < PARTS; part++) {
                        Vector x[SIDE], a[SIDE];
                        UNROLL for (int i = 0; i < SIDE; i++) x[i] = half[i / 2][t][part][2 * row + i % 2];
                        inverse_dft14(OUTPUTS, x, a, 2);
                        UNROLL for (int i = 0; i < OUTPUTS; i++) store(full[row][i] + part * WIDTH, a[i]);
                    }
                const Size top = (start + t) / across * STEP, left = (start + t) % across * STEP;
                for (Size row = 0; row < STEP && top + row < layer->tall; row++)
                    for (Size i = 0; i < STEP && left + i < layer->wide; i++) {
                        const Size at = ((top + row) * layer->wide + left + i) * outputs + block;
                        pool_window(full[2 * row][2 * i], OUTPUTS * BLOCK, y + at, codes + at);
                    }
            }
        }
    }
}

void narrow_picture(const float *x, const float *kernels, const float *bias, float *y, uint8_t *codes,
                    const Layer *layer)
{
    if (layer->inputs == 3) picture_forward(3, x, kernels, bias, y, codes, layer);
    else picture_forward(1, x, kernels, bias, y, codes, layer);
}

Size narrow_forward_scratch(Size inputs, Size outputs) { return SLOTS * inputs * 2 * outputs; }

/* y = relu(max_pool(conv(x))) and each window's code. */
void narrow_forward(const float *x, const float *w, const float *bias, float *y, uint8_t *codes, float *scratch,
                    Size count, Size height, Size width, Size inputs, Size outputs)
{
    const Layer layer = layer_of(count, height, width, inputs, outputs);
    narrow_kernels(w, scratch, &layer);
    const Size pixels = picture_size(&layer), pooled = pooled_size(&layer);
    for (Size i = 0; i < count; i++, x += pixels, y += pooled, codes += pooled)
        narrow_picture(x, scratch, bias, y, codes, &layer);
}
