/* Max-pooling over 2x2 pixels, then ReLU, on channels-last float32 pictures: one pass over memory in each direction.

   The results are PyTorch's to the bit: of equal numbers the first wins, a NaN always wins, -0 stays -0, and a last odd
   row or column belongs to no window. */

#include <stddef.h>
#include <stdint.h>

enum { BLOCKED = 4 }; /* ReLU lets no gradient through; smaller codes say which of the window's pixels won */

/* The channels of one of the window's pixels, which are counted row by row. */
#define PIXEL(images, which) \
    ((images) + ((image * height + 2 * y + (which) / 2) * width + 2 * x + (which) % 2) * channels)

static inline int wins(float number, float best)
{
    return (number > best) | (number != number);
}

/* `codes`, one for each number of the result, are what the backward pass has to know; NULL where there will be none. */
void pool_relu(const float *restrict in, float *restrict out, uint8_t *restrict codes, ptrdiff_t images,
               ptrdiff_t height, ptrdiff_t width, ptrdiff_t channels)
{
    for (ptrdiff_t image = 0; image < images; image++)
        for (ptrdiff_t y = 0; y < height / 2; y++)
            for (ptrdiff_t x = 0; x < width / 2; x++, out += channels) {
                const float *a = PIXEL(in, 0), *b = PIXEL(in, 1), *c = PIXEL(in, 2), *d = PIXEL(in, 3);
                if (!codes) {
                    for (ptrdiff_t i = 0; i < channels; i++) {
                        float best = wins(b[i], a[i]) ? b[i] : a[i];
                        best = wins(c[i], best) ? c[i] : best;
                        best = wins(d[i], best) ? d[i] : best;
                        out[i] = best < 0 ? 0 : best;
                    }
                    continue;
                }
                for (ptrdiff_t i = 0; i < channels; i++) {
                    int32_t code = wins(b[i], a[i]) ? 1 : 0;
                    float best = wins(b[i], a[i]) ? b[i] : a[i];
                    code = wins(c[i], best) ? 2 : code;
                    best = wins(c[i], best) ? c[i] : best;
                    code = wins(d[i], best) ? 3 : code;
                    best = wins(d[i], best) ? d[i] : best;
                    codes[i] = best <= 0 ? BLOCKED : code;
                    out[i] = best < 0 ? 0 : best;
                }
                codes += channels;
            }
}

/* What comes through to one of the window's pixels. PyTorch adds it to zero, which makes +0 of -0. */
static inline void spread(const float *restrict above, const uint8_t *restrict codes, float *restrict gradient,
                          int32_t which, ptrdiff_t channels)
{
    for (ptrdiff_t i = 0; i < channels; i++) {
        int32_t code = codes[i];
        gradient[i] = code == which ? 0.0f + above[i] : 0.0f;
    }
}

/* Pixels outside of all windows are left as they are. */
void pool_relu_backward(const float *restrict above, const uint8_t *restrict codes, float *restrict gradient,
                        ptrdiff_t images, ptrdiff_t height, ptrdiff_t width, ptrdiff_t channels)
{
    for (ptrdiff_t image = 0; image < images; image++)
        for (ptrdiff_t y = 0; y < height / 2; y++)
            for (ptrdiff_t x = 0; x < width / 2; x++, above += channels, codes += channels)
                for (int32_t which = 0; which < 4; which++)
                    spread(above, codes, PIXEL(gradient, which), which, channels);
}
