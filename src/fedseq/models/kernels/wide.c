/* A layer with many channels: 5x5 convolution of pictures of up to 14x14 pixels, max-pooling over 2x2, ReLU.

   Pictures lie channels-last, kernels as [output channel][5][5][input channel]; both numbers of channels are multiples
   of 16. A picture is transformed as a whole; smaller ones stand in a corner of zeros. See transform.h for the
   formulas. The inverse transform gives 196 times its numbers: kernels are divided by 196 before they are transformed,
   and their gradient after it came back. */

#include "layers.h"
#include "products.h"
#include "window.h"

static const float PER_PIXEL = 1.0f / (SIDE * SIDE);

/* Spectra of `count` times n x n pixels of 16 channels. Pixels, rows and pictures lie as far apart as is said.
   Slots lie far apart in memory: with several pictures at a time, each visit to one touches neighbouring lines. */
INLINE void transform(const int n, const float *in, Size pixel, Size row, Size picture, Size count, float *out,
                      Size stride)
{
    Vector half[GROUP][PARTS][SIDE][SIDE];
    for (Size g = 0; g < count; g++)
        for (int y = 0; y < n; y++)
            for (int part = 0; part < PARTS; part++) {
                Vector a[SIDE], x[SIDE];
                UNROLL for (int i = 0; i < n; i++) a[i] = load(in + g * picture + y * row + i * pixel + part * WIDTH);
                dft14(n, a, x);
                UNROLL for (int i = 0; i < SIDE; i++) half[g][part][i][y] = x[i];
            }
    for (int column = 0; column < COLUMNS; column++, out += SIDE * stride)
        for (Size g = 0; g < count; g++)
            for (int part = 0; part < PARTS; part++) {
                const Vector *first = half[g][part][2 * column], *second = half[g][part][2 * column + 1];
                float *to = out + g * PAIR + part * WIDTH;
                if (column == 0) transform_columns(n, 1, first, second, to, stride);
                else transform_columns(n, 0, first, second, to, stride);
            }
}

/* And back, times 196. `bias` (or NULL) is added to every pixel: that is what frequency zero does. */
INLINE void inverse(const int n, const float *in, Size stride, const float *bias, Size count, float *out, Size pixel,
                    Size row, Size picture)
{
    Vector half[GROUP][PARTS][SIDE][SIDE];
    for (int column = 0; column < COLUMNS; column++, in += SIDE * stride)
        for (Size g = 0; g < count; g++)
            for (int part = 0; part < PARTS; part++) {
                const float *from = in + g * PAIR + part * WIDTH;
                Vector slots[2 * SIDE], first[SIDE], second[SIDE];
                UNROLL for (int j = 0; j < SIDE; j++)
                    slots[2 * j] = load(from + j * stride), slots[2 * j + 1] = load(from + j * stride + BLOCK);
                if (column == 0) {
                    if (bias) slots[0] += load(bias + part * WIDTH);
                    inverse_columns(n, 1, slots, first, second);
                } else
                    inverse_columns(n, 0, slots, first, second);
                UNROLL for (int y = 0; y < n; y++) {
                    half[g][part][y][2 * column] = first[y];
                    half[g][part][y][2 * column + 1] = second[y];
                }
            }
    for (Size g = 0; g < count; g++)
        for (int y = 0; y < n; y++)
            for (int part = 0; part < PARTS; part++) {
                Vector a[SIDE];
                inverse_dft14(n, half[g][part][y], a, 2);
                UNROLL for (int i = 0; i < n; i++) store(out + g * picture + y * row + i * pixel + part * WIDTH, a[i]);
            }
}

void wide_spectra(const float *x, float *spectra, Size first, Size some, const Layer *layer)
{
    const Size width = layer->width, channels = layer->inputs, picture = layer->height * width * channels;
    const int small = layer->height < SIDE || width < SIDE;
    float framed[GROUP][SIDE][SIDE][BLOCK];
    if (small) memset(framed, 0, sizeof framed);
    for (Size block = 0; block < channels; block += BLOCK) {
        const float *from = x + block;
        Size pixel = channels, row = width * channels, next = picture;
        if (small) {
            for (Size g = 0; g < some; g++)
                for (Size y = 0; y < layer->height; y++)
                    for (Size i = 0; i < width; i++)
                        memcpy(framed[g][y][i], from + g * picture + (y * width + i) * channels, BLOCK * sizeof *x);
            from = framed[0][0][0], pixel = BLOCK, row = SIDE * BLOCK, next = SIDE * SIDE * BLOCK;
        }
        transform(SIDE, from, pixel, row, next, some, spectra + block * 2 * layer->count + first * PAIR,
                  slot_stride(channels, layer->count));
    }
}

/* Spectra of the kernels as the factor B of a product over input channels, [block of outputs][input], or over output
   channels, [block of inputs][output], where `backward`. */
static void kernel_spectra(const int backward, const float *w, float *spectra, Size stride, Size inputs, Size outputs)
{
    enum { KERNEL = TAPS * TAPS };
    for (Size output = 0; output < outputs; output += BLOCK)
        for (Size input = 0; input < inputs; input += BLOCK) {
            float scaled[BLOCK][KERNEL][BLOCK];
            for (int o = 0; o < BLOCK; o++)
                for (int tap = 0; tap < KERNEL; tap++) {
                    const float *from = w + ((output + o) * KERNEL + tap) * inputs + input;
                    for (int i = 0; i < BLOCK; i++)
                        if (backward) scaled[o][tap][i] = from[i] * PER_PIXEL;
                        else scaled[i][tap][o] = from[i] * PER_PIXEL;
                }
            float *to = spectra + (backward ? input * outputs + output * BLOCK : output * inputs + input * BLOCK) * 2;
            for (int first = 0; first < BLOCK; first += GROUP)
                transform(TAPS, scaled[first][0], BLOCK, TAPS * BLOCK, KERNEL * BLOCK, GROUP, to + first * PAIR,
                          stride);
        }
}

/* Of the gradient of the pooled output. Pixels beyond the last window have none. */
static void gradient_spectra(const float *g, const uint8_t *codes, float *spectra, const Layer *layer)
{
    const Size count = layer->count, tall = layer->tall, wide = layer->wide, channels = layer->outputs;
    float spread[GROUP][OUTPUTS][OUTPUTS][BLOCK];
    memset(spread, 0, sizeof spread);
    for (Size first = 0; first < count; first += GROUP)
        for (Size block = 0; block < channels; block += BLOCK) {
            const Size some = at_most_group(count - first);
            for (Size i = 0; i < some; i++)
                for (Size y = 0; y < tall; y++)
                    for (Size x = 0; x < wide; x++) {
                        const Size at = (((first + i) * tall + y) * wide + x) * channels + block;
                        spread_window(g + at, codes + at, spread[i][2 * y][2 * x], OUTPUTS * BLOCK);
                    }
            transform(OUTPUTS, spread[0][0][0], BLOCK, OUTPUTS * BLOCK, OUTPUTS * OUTPUTS * BLOCK, some,
                      spectra + block * 2 * count + first * PAIR, slot_stride(channels, count));
        }
}

/* A product's result lies in the same memory as its factor B, the kernels, one slot before it: when a slot is written,
   what was there has been used. That keeps more of a batch in the cache. */
INLINE Size shared_stride(Size count, Size inputs, Size outputs, Size channels)
{
    const Size kernels = slot_stride(inputs, outputs), results = slot_stride(channels, count);
    return kernels > results ? kernels : results;
}

Size wide_spectra_size(Size count, Size inputs) { return SLOTS * slot_stride(inputs, count); }

Size wide_forward_scratch(Size count, Size inputs, Size outputs)
{
    return (SLOTS + 1) * shared_stride(count, inputs, outputs, outputs);
}

Size wide_backward_scratch(Size count, Size inputs, Size outputs)
{
    return SLOTS * slot_stride(outputs, count) + (SLOTS + 1) * shared_stride(count, inputs, outputs, inputs);
}

/* From the pictures' spectra: convolution, pooling and ReLU. */
void wide_outputs(const float *spectra, const float *w, const float *bias, float *y, uint8_t *codes, float *scratch,
                  const Layer *layer)
{
    const Size count = layer->count, outputs = layer->outputs, tall = layer->tall, wide = layer->wide;
    const Size stride = shared_stride(count, layer->inputs, outputs, outputs);
    kernel_spectra(0, w, scratch + stride, stride, layer->inputs, outputs);
    products(0, CONJUGATE_B, spectra, slot_stride(layer->inputs, count), scratch + stride, stride, scratch, stride,
             count, outputs, layer->inputs);
    for (Size first = 0; first < count; first += GROUP)
        for (Size block = 0; block < outputs; block += BLOCK) {
            float full[GROUP][OUTPUTS][OUTPUTS][BLOCK];
            const Size some = at_most_group(count - first);
            inverse(OUTPUTS, scratch + block * 2 * count + first * PAIR, stride, bias + block, some, full[0][0][0],
                    BLOCK, OUTPUTS * BLOCK, OUTPUTS * OUTPUTS * BLOCK);
            for (Size g = 0; g < some; g++)
                for (Size row = 0; row < tall; row++)
                    for (Size column = 0; column < wide; column++) {
                        const Size at = (((first + g) * tall + row) * wide + column) * outputs + block;
                        pool_window(full[g][2 * row][2 * column], OUTPUTS * BLOCK, y + at, codes + at);
                    }
        }
}

/* From the gradient of y those of bias and kernels (unless NULL). Where that of the pictures is wanted as well, its
   spectra are left at the beginning of `scratch`. */
void wide_gradients(const float *g, const uint8_t *codes, const float *spectra, const float *w, float *bias_gradient,
                    float *kernel_gradient, int of_pictures, float *scratch, const Layer *layer)
{
    const Size count = layer->count, inputs = layer->inputs, outputs = layer->outputs;
    const Size stride = shared_stride(count, inputs, outputs, inputs), above_stride = slot_stride(outputs, count);
    float *above = scratch + (SLOTS + 1) * stride;
    gradient_spectra(g, codes, above, layer);
    for (Size o = 0; o < outputs; o++) { /* frequency zero is the sum of a picture's pixels */
        const float *zero = above + o / BLOCK * count * PAIR + o % BLOCK;
        float sum = 0;
        for (Size i = 0; i < count; i++) sum += zero[i * PAIR];
        bias_gradient[o] = sum;
    }
    if (kernel_gradient) {
        const Size kernel = TAPS * TAPS * inputs;
        products(1, CONJUGATE_A, above, above_stride, spectra, slot_stride(inputs, count), scratch, stride, outputs,
                 inputs, count);
        for (Size block = 0; block < inputs; block += BLOCK)
            for (Size o = 0; o < outputs; o += GROUP)
                inverse(TAPS, scratch + block * 2 * outputs + o * PAIR, stride, NULL, GROUP,
                        kernel_gradient + o * kernel + block, inputs, TAPS * inputs, kernel);
        for (Size i = 0; i < outputs * kernel; i++) kernel_gradient[i] *= PER_PIXEL;
    }
    if (of_pictures) {
        kernel_spectra(1, w, scratch + stride, stride, inputs, outputs);
        products(0, PLAIN, above, above_stride, scratch + stride, stride, scratch, stride, count, inputs, outputs);
    }
}

void wide_picture_gradients(const float *scratch, float *gradient, Size first, Size some, const Layer *layer)
{
    const Size width = layer->width, inputs = layer->inputs, picture = layer->height * width * inputs;
    const Size stride = shared_stride(layer->count, inputs, layer->outputs, inputs);
    const int small = layer->height < SIDE || width < SIDE;
    float framed[GROUP][SIDE][SIDE][BLOCK];
    for (Size block = 0; block < inputs; block += BLOCK) {
        const float *from = scratch + block * 2 * layer->count + first * PAIR;
        float *to = small ? framed[0][0][0] : gradient + block;
        const Size pixel = small ? BLOCK : inputs, row = small ? SIDE * BLOCK : width * inputs;
        inverse(SIDE, from, stride, NULL, some, to, pixel, row, small ? SIDE * SIDE * BLOCK : picture);
        for (Size i = 0; small && i < some; i++)
            for (Size y = 0; y < layer->height; y++)
                for (Size x = 0; x < width; x++)
                    memcpy(gradient + i * picture + (y * width + x) * inputs + block, framed[i][y][x],
                           BLOCK * sizeof *gradient);
    }
}

/* y = relu(max_pool(conv(x))) and each window's code; `spectra`, of the pictures, are what the backward pass needs. */
void wide_forward(const float *x, const float *w, const float *bias, float *y, uint8_t *codes, float *spectra,
                  float *scratch, Size count, Size height, Size width, Size inputs, Size outputs)
{
    const Layer layer = layer_of(count, height, width, inputs, outputs);
    for (Size first = 0; first < count; first += GROUP)
        wide_spectra(x + first * height * width * inputs, spectra, first, at_most_group(count - first), &layer);
    wide_outputs(spectra, w, bias, y, codes, scratch, &layer);
}

/* From the gradient of y those of bias, kernels and pictures; either of the last two may be NULL. */
void wide_backward(const float *g, const uint8_t *codes, const float *spectra, const float *w, float *bias_gradient,
                   float *kernel_gradient, float *picture_gradient, float *scratch, Size count, Size height,
                   Size width, Size inputs, Size outputs)
{
    const Layer layer = layer_of(count, height, width, inputs, outputs);
    wide_gradients(g, codes, spectra, w, bias_gradient, kernel_gradient, picture_gradient != NULL, scratch, &layer);
    for (Size first = 0; picture_gradient && first < count; first += GROUP)
        wide_picture_gradients(scratch, picture_gradient + first * height * width * inputs, first,
                               at_most_group(count - first), &layer);
}
