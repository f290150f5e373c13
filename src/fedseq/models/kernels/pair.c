/* A first layer and a second one, picture by picture: what lies between the two, a quarter of all memory that they
   would read and write, never leaves the cache. The numbers are those of one layer after the other, to the bit. */

#include "layers.h"

/* Floats of scratch memory for the functions below. `middle` counts the channels between the layers. */
Size pair_forward_scratch(Size count, Size height, Size width, Size inputs, Size middle, Size outputs)
{
    const Layer first = layer_of(count, height, width, inputs, middle);
    const Size one = narrow_forward_scratch(inputs, middle), two = wide_forward_scratch(count, middle, outputs);
    return pooled_size(&first) + (one > two ? one : two);
}

Size pair_backward_scratch(Size count, Size height, Size width, Size inputs, Size middle, Size outputs)
{
    const Layer first = layer_of(count, height, width, inputs, middle);
    return pooled_size(&first) + narrow_backward_scratch(height, width, inputs, middle) +
           wide_backward_scratch(count, middle, outputs);
}

void pair_forward(const float *x, const float *w1, const float *bias1, const float *w2, const float *bias2, float *y,
                  uint8_t *codes1, uint8_t *codes2, float *halves, float *scratch, Size count, Size height, Size width,
                  Size inputs, Size middle, Size outputs)
{
    const Layer one = layer_of(count, height, width, inputs, middle);
    const Layer two = layer_of(count, one.tall, one.wide, middle, outputs);
    const Size pixels = picture_size(&one), pooled = pooled_size(&one);
    float *kernels = scratch + pooled;
    narrow_kernels(w1, kernels, &one);
    for (Size i = 0; i < count; i++) {
        narrow_picture(x + i * pixels, kernels, bias1, scratch, codes1 + i * pooled, &one);
        wide_begin(scratch, halves, i, &two);
    }
    wide_outputs(halves, w2, bias2, y, codes2, kernels, &two);
}

void pair_backward(const float *x, const float *g, const uint8_t *codes1, const uint8_t *codes2, const float *halves,
                   const float *w2, float *bias1_gradient, float *kernel1_gradient, float *bias2_gradient,
                   float *kernel2_gradient, float *scratch, Size count, Size height, Size width, Size inputs,
                   Size middle, Size outputs)
{
    const Layer one = layer_of(count, height, width, inputs, middle);
    const Layer two = layer_of(count, one.tall, one.wide, middle, outputs);
    const Size pixels = picture_size(&one), pooled = pooled_size(&one);
    float *sums = scratch + pooled, *rest = sums + narrow_backward_scratch(height, width, inputs, middle);
    wide_gradients(g, codes2, halves, w2, bias2_gradient, kernel2_gradient, 1, rest, &two);
    narrow_begin_gradients(bias1_gradient, sums, &one);
    for (Size i = 0; i < count; i++) {
        wide_picture_gradient(rest, scratch, i, &two);
        narrow_add_gradient(x + i * pixels, scratch, codes1 + i * pooled, bias1_gradient, sums, &one);
    }
    narrow_end_gradients(sums, kernel1_gradient, &one);
}
