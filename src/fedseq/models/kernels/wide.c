/* A layer with many channels: 5x5 convolution of pictures of up to 14x14 pixels, max-pooling over 2x2, ReLU.

   Pictures lie channels-last, kernels as [output channel][5][5][input channel]; both numbers of channels are multiples
   of 16. A picture is transformed as a whole; smaller ones stand in a corner of zeros. See transform.h for the
   formulas. The inverse transform gives 196 times its numbers: kernels are divided by 196 before they are transformed,
   and their gradient after it came back; columns.h says in which order. */

#include "columns.h"
#include "layers.h"
#include "window.h"

/* A product's result lies in the same memory as its factor B, the kernels, one slot before it: when a slot is written,
   what was there has been used. That keeps more of a column in the cache. */
INLINE Size shared_stride(Size count, Size inputs, Size outputs, Size channels)
{
    const Size kernels = slot_stride(inputs, outputs), results = slot_stride(channels, count);
    return kernels > results ? kernels : results;
}

Size wide_halves_size(Size count, Size inputs) { return halves_size(SIDE, inputs, count); }

Size wide_forward_scratch(Size count, Size inputs, Size outputs)
{
    return halves_size(OUTPUTS, outputs, count) + KERNEL * inputs * outputs + SIDE * slot_stride(inputs, count) +
           (SIDE + 1) * shared_stride(count, inputs, outputs, outputs);
}

Size wide_backward_scratch(Size count, Size inputs, Size outputs)
{
    return halves_size(SIDE, inputs, count) + halves_size(OUTPUTS, outputs, count) +
           halves_size(TAPS, inputs, outputs) + KERNEL * inputs * outputs + SIDE * slot_stride(inputs, count) +
           SIDE * slot_stride(outputs, count) + (SIDE + 1) * shared_stride(count, inputs, outputs, inputs);
}

/* The rows of one picture. */
void wide_begin(const float *picture, float *halves, Size number, const Layer *layer)
{
    const Size width = layer->width, channels = layer->inputs, column = column_size(SIDE, channels, layer->count);
    const int small = layer->height < SIDE || width < SIDE;
    float framed[SIDE][SIDE][BLOCK];
    if (small) memset(framed, 0, sizeof framed);
    for (Size block = 0; block < channels; block += BLOCK) {
        float *to = halves + (block / BLOCK * layer->count + number) * SIDE * PAIR;
        for (Size y = 0; small && y < layer->height; y++)
            for (Size x = 0; x < width; x++)
                memcpy(framed[y][x], picture + (y * width + x) * channels + block, BLOCK * sizeof *picture);
        if (small) transform_rows(SIDE, framed[0][0], BLOCK, SIDE * BLOCK, to, column);
        else transform_rows(SIDE, picture + block, channels, width * channels, to, column);
    }
}

/* From half transformed pictures: convolution, pooling and ReLU. */
void wide_outputs(const float *halves, const float *w, const float *bias, float *y, uint8_t *codes, float *scratch,
                  const Layer *layer)
{
    const Size count = layer->count, inputs = layer->inputs, outputs = layer->outputs;
    const Size in_stride = slot_stride(inputs, count), stride = shared_stride(count, inputs, outputs, outputs);
    const Size column_out = column_size(OUTPUTS, outputs, count);
    float *results = scratch, *scaled = results + halves_size(OUTPUTS, outputs, count);
    float *pictures = scaled + KERNEL * inputs * outputs, *shared = pictures + SIDE * in_stride;
    scale_kernels(0, w, scaled, inputs, outputs);
    for (int column = 0; column < COLUMNS; column++) {
        picture_column(SIDE, column, halves, pictures, inputs, count);
        kernel_column(column, scaled, inputs * outputs / BLOCK, shared + stride, stride);
        products(0, CONJUGATE_B, column, pictures, in_stride, shared + stride, stride, shared, stride, count, outputs,
                 inputs);
        for (Size block = 0; block < outputs; block += BLOCK)
            inverse_column(OUTPUTS, column, shared + block * 2 * count, stride, bias + block, count,
                           results + column * column_out + block * count * 2 * OUTPUTS);
    }
    for (Size i = 0; i < count; i++)
        for (Size block = 0; block < outputs; block += BLOCK) {
            float full[OUTPUTS][OUTPUTS][BLOCK];
            inverse_rows(OUTPUTS, results + (block / BLOCK * count + i) * OUTPUTS * PAIR, column_out, full[0][0], BLOCK,
                         OUTPUTS * BLOCK);
            for (Size row = 0; row < layer->tall; row++)
                for (Size across = 0; across < layer->wide; across++) {
                    const Size at = ((i * layer->tall + row) * layer->wide + across) * outputs + block;
                    pool_window(full[2 * row][2 * across], OUTPUTS * BLOCK, y + at, codes + at);
                }
        }
}

/* The rows of the gradient of the pooled output. Pixels beyond the last window have none. */
static void begin_gradient(const float *g, const uint8_t *codes, float *halves, const Layer *layer)
{
    const Size count = layer->count, tall = layer->tall, wide = layer->wide, channels = layer->outputs;
    const Size column = column_size(OUTPUTS, channels, count);
    float spread[OUTPUTS][OUTPUTS][BLOCK];
    memset(spread, 0, sizeof spread);
    for (Size i = 0; i < count; i++)
        for (Size block = 0; block < channels; block += BLOCK) {
            for (Size y = 0; y < tall; y++)
                for (Size x = 0; x < wide; x++) {
                    const Size at = ((i * tall + y) * wide + x) * channels + block;
                    spread_window(g + at, codes + at, spread[2 * y][2 * x], OUTPUTS * BLOCK);
                }
            transform_rows(OUTPUTS, spread[0][0], BLOCK, OUTPUTS * BLOCK,
                           halves + (block / BLOCK * count + i) * OUTPUTS * PAIR, column);
        }
}

/* From the gradient of y those of bias and kernels (unless NULL). Where that of the pictures is wanted as well, it is
   left half transformed at the beginning of `scratch`. */
void wide_gradients(const float *g, const uint8_t *codes, const float *halves, const float *w, float *bias_gradient,
                    float *kernel_gradient, int of_pictures, float *scratch, const Layer *layer)
{
    const Size count = layer->count, inputs = layer->inputs, outputs = layer->outputs, kernel = KERNEL * inputs;
    const Size in_stride = slot_stride(inputs, count), out_stride = slot_stride(outputs, count);
    const Size stride = shared_stride(count, inputs, outputs, inputs);
    const Size column_in = column_size(SIDE, inputs, count), column_kernel = column_size(TAPS, inputs, outputs);
    float *below = scratch, *above = below + halves_size(SIDE, inputs, count);
    float *kernels = above + halves_size(OUTPUTS, outputs, count);
    float *scaled = kernels + halves_size(TAPS, inputs, outputs);
    float *pictures = scaled + outputs * kernel, *gradients = pictures + SIDE * in_stride;
    float *shared = gradients + SIDE * out_stride;
    begin_gradient(g, codes, above, layer);
    if (of_pictures) scale_kernels(1, w, scaled, inputs, outputs);
    for (int column = 0; column < COLUMNS; column++) {
        picture_column(OUTPUTS, column, above, gradients, outputs, count);
        for (Size o = 0; column == 0 && o < outputs; o++) { /* frequency zero is the sum of a picture's pixels */
            const float *zero = gradients + o / BLOCK * count * PAIR + o % BLOCK;
            float sum = 0;
            for (Size i = 0; i < count; i++) sum += zero[i * PAIR];
            bias_gradient[o] = sum;
        }
        if (kernel_gradient) {
            picture_column(SIDE, column, halves, pictures, inputs, count);
            products(1, CONJUGATE_A, column, gradients, out_stride, pictures, in_stride, shared, stride, outputs,
                     inputs, count);
            for (Size block = 0; block < inputs; block += BLOCK)
                inverse_column(TAPS, column, shared + block * 2 * outputs, stride, NULL, outputs,
                               kernels + column * column_kernel + block * outputs * 2 * TAPS);
        }
        if (of_pictures) {
            kernel_column(column, scaled, inputs * outputs / BLOCK, shared + stride, stride);
            products(0, PLAIN, column, gradients, out_stride, shared + stride, stride, shared, stride, count, inputs,
                     outputs);
            for (Size block = 0; block < inputs; block += BLOCK)
                inverse_column(SIDE, column, shared + block * 2 * count, stride, NULL, count,
                               below + column * column_in + block * count * 2 * SIDE);
        }
    }
    for (Size o = 0; kernel_gradient && o < outputs; o++)
        for (Size block = 0; block < inputs; block += BLOCK)
            inverse_rows(TAPS, kernels + (block / BLOCK * outputs + o) * TAPS * PAIR, column_kernel,
                         kernel_gradient + o * kernel + block, inputs, TAPS * inputs);
    for (Size i = 0; kernel_gradient && i < outputs * kernel; i++) kernel_gradient[i] *= PER_PIXEL;
}

void wide_picture_gradient(const float *scratch, float *gradient, Size number, const Layer *layer)
{
    const Size width = layer->width, inputs = layer->inputs, column = column_size(SIDE, inputs, layer->count);
    const int small = layer->height < SIDE || width < SIDE;
    float framed[SIDE][SIDE][BLOCK];
    for (Size block = 0; block < inputs; block += BLOCK) {
        const float *from = scratch + (block / BLOCK * layer->count + number) * SIDE * PAIR;
        if (small) inverse_rows(SIDE, from, column, framed[0][0], BLOCK, SIDE * BLOCK);
        else inverse_rows(SIDE, from, column, gradient + block, inputs, width * inputs);
        for (Size y = 0; small && y < layer->height; y++)
            for (Size x = 0; x < width; x++)
                memcpy(gradient + (y * width + x) * inputs + block, framed[y][x], BLOCK * sizeof *gradient);
    }
}

/* y = relu(max_pool(conv(x))) and each window's code; `halves`, of the pictures, are what the backward pass needs. */
void wide_forward(const float *x, const float *w, const float *bias, float *y, uint8_t *codes, float *halves,
                  float *scratch, Size count, Size height, Size width, Size inputs, Size outputs)
{
    const Layer layer = layer_of(count, height, width, inputs, outputs);
    for (Size i = 0; i < count; i++) wide_begin(x + i * picture_size(&layer), halves, i, &layer);
    wide_outputs(halves, w, bias, y, codes, scratch, &layer);
}

/* From the gradient of y those of bias, kernels and pictures; either of the last two may be NULL. */
void wide_backward(const float *g, const uint8_t *codes, const float *halves, const float *w, float *bias_gradient,
                   float *kernel_gradient, float *picture_gradient, float *scratch, Size count, Size height,
                   Size width, Size inputs, Size outputs)
{
    const Layer layer = layer_of(count, height, width, inputs, outputs);
    wide_gradients(g, codes, halves, w, bias_gradient, kernel_gradient, picture_gradient != NULL, scratch, &layer);
    for (Size i = 0; picture_gradient && i < count; i++)
        wide_picture_gradient(scratch, picture_gradient + i * picture_size(&layer), i, &layer);
}
