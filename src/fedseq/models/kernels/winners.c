/* The gradients of a first layer (narrow.c).

   At most one pixel of each window has a gradient, a quarter of all pixels: the gradient of a channel's kernel is
   summed over these winners, at each of which it takes five runs of up to 15 floats from the picture. Runs are laid out
   so that each begins in a cache line of its own, in bands of five rows of windows, which fit into the cache. */

#include "layers.h"
#include "window.h"

enum { TAPS = 5, KERNEL = TAPS * TAPS, RUN = 16, BAND = 5, BAND_ROWS = 2 * BAND + TAPS - 1 };

/* Where the winners of some rows of windows lie and what gradient they have, 16 channels at a time; blocked windows
   have none. Adds the gradients up for the bias. */
INLINE void find_winners(const float *g, const uint8_t *codes, Size rows, int32_t (*at)[BLOCK],
                         float (*gradient)[BLOCK], float *bias_gradient, const Layer *layer)
{
    const int32_t across = (int32_t)(2 * layer->wide);
    Vector sum[PARTS] = {0};
    for (int32_t y = 0; y < rows; y++)
        for (int32_t x = 0; x < layer->wide; x++, at++, gradient++, g += layer->outputs, codes += layer->outputs)
            UNROLL for (int part = 0; part < PARTS; part++) {
                const UnalignedCodes *from = (const UnalignedCodes *)(codes + part * WIDTH);
                const Mask code = __builtin_convertvector((Codes)*from, Mask);
                const Mask pixel = 2 * (y * across + x) + (code & 1) + ((code >> 1) & 1) * across;
                const Vector passed = (Vector)((Mask)load(g + part * WIDTH) & (code != BLOCKED));
                memcpy(*at + part * WIDTH, &pixel, sizeof pixel);
                store(*gradient + part * WIDTH, passed);
                sum[part] += passed;
            }
    for (int part = 0; part < PARTS; part++)
        store(bias_gradient + part * WIDTH, load(bias_gradient + part * WIDTH) + sum[part]);
}

/* One picture's share of the gradients of kernels, `sums` [output][5][16], and bias. */
INLINE void picture_backward(const int channels, const float *picture, const float *g, const uint8_t *codes,
                             float *bias_gradient, float *sums, float *scratch, const Layer *layer)
{
    const Size across = 2 * layer->wide, row = across * RUN, most = BAND * layer->wide;
    float *runs = scratch, (*gradient)[BLOCK] = (float (*)[BLOCK])(runs + BAND_ROWS * row);
    int32_t (*at)[BLOCK] = (int32_t (*)[BLOCK])(gradient + most);
    for (Size top = 0; top < layer->tall; top += BAND) {
        const Size rows = layer->tall - top < BAND ? layer->tall - top : BAND;
        for (Size y = 0; y < 2 * rows + TAPS - 1; y++)
            for (Size x = 0; x < across; x++)
                memcpy(runs + y * row + x * RUN, picture + ((2 * top + y) * layer->width + x) * channels,
                       TAPS * channels * sizeof *runs);
        for (Size block = 0; block < layer->outputs; block += BLOCK) {
            const Size first = top * layer->wide * layer->outputs + block;
            find_winners(g + first, codes + first, rows, at, gradient, bias_gradient + block, layer);
            for (int o = 0; o < BLOCK; o++) {
                float *sum = sums + (block + o) * TAPS * RUN;
                Vector run[TAPS][PARTS] = {0}; /* many short sums round off less than a long one */
                for (Size i = 0; i < rows * layer->wide; i++) {
                    const float *from = runs + (Size)at[i][o] * RUN;
                    const Vector times = all(gradient[i][o]);
                    UNROLL for (int k = 0; k < TAPS; k++) UNROLL for (int part = 0; part < PARTS; part++)
                        run[k][part] = madd(times, load(from + k * row + part * WIDTH), run[k][part]);
                }
                UNROLL for (int k = 0; k < TAPS; k++) UNROLL for (int part = 0; part < PARTS; part++)
                    store(sum + k * RUN + part * WIDTH, load(sum + k * RUN + part * WIDTH) + run[k][part]);
            }
        }
    }
}

/* The sums; a band's runs; its windows' gradients and winners. */
Size narrow_backward_scratch(Size height, Size width, Size inputs, Size outputs)
{
    const Layer layer = layer_of(1, height, width, inputs, outputs);
    return outputs * TAPS * RUN + BAND_ROWS * 2 * layer.wide * RUN + 2 * BAND * layer.wide * BLOCK;
}

void narrow_begin_gradients(float *bias_gradient, float *scratch, const Layer *layer)
{
    const Size floats = narrow_backward_scratch(layer->height, layer->width, layer->inputs, layer->outputs);
    memset(scratch, 0, floats * sizeof *scratch);
    memset(bias_gradient, 0, layer->outputs * sizeof *bias_gradient);
}

void narrow_add_gradient(const float *x, const float *g, const uint8_t *codes, float *bias_gradient, float *scratch,
                         const Layer *layer)
{
    float *rest = scratch + layer->outputs * TAPS * RUN;
    if (layer->inputs == 3) picture_backward(3, x, g, codes, bias_gradient, scratch, rest, layer);
    else picture_backward(1, x, g, codes, bias_gradient, scratch, rest, layer);
}

void narrow_end_gradients(const float *scratch, float *kernel_gradient, const Layer *layer)
{
    for (Size o = 0; o < layer->outputs; o++)
        for (Size tap = 0; tap < KERNEL; tap++)
            for (Size c = 0; c < layer->inputs; c++)
                kernel_gradient[(o * KERNEL + tap) * layer->inputs + c] =
                    scratch[(o * TAPS + tap / TAPS) * RUN + tap % TAPS * layer->inputs + c];
}

/* From the gradient of y those of bias and kernels. */
void narrow_backward(const float *x, const float *g, const uint8_t *codes, float *bias_gradient, float *kernel_gradient,
                     float *scratch, Size count, Size height, Size width, Size inputs, Size outputs)
{
    const Layer layer = layer_of(count, height, width, inputs, outputs);
    narrow_begin_gradients(bias_gradient, scratch, &layer);
    const Size pixels = picture_size(&layer), pooled = pooled_size(&layer);
    for (Size i = 0; i < count; i++, x += pixels, g += pooled, codes += pooled)
        narrow_add_gradient(x, g, codes, bias_gradient, scratch, &layer);
    narrow_end_gradients(scratch, kernel_gradient, &layer);
}
