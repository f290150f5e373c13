/* A first layer and a second one, some pictures at a time: what lies between the two, a quarter of all memory that they
   would read and write, never leaves the cache. The numbers are those of one layer after the other, to the bit. */

#include "layers.h"

static Size between(const Layer *first) { return GROUP * pooled_size(first); }

/* Floats of scratch memory for the functions below. `middle` counts the channels between the layers. */
Size pair_forward_scratch(Size count, Size height, Size width, Size inputs, Size middle, Size outputs)
{
    const Layer first = layer_of(count, height, width, inputs, middle);
    const Size one = narrow_forward_scratch(inputs, middle), two = wide_forward_scratch(count, middle, outputs);
    return between(&first) + (one > two ? one : two);
}

Size pair_backward_scratch(Size count, Size height, Size width, Size inputs, Size middle, Size outputs)
{
    const Layer first = layer_of(count, height, width, inputs, middle);
    return between(&first) + narrow_backward_scratch(height, width, inputs, middle) +
           wide_backward_scratch(count, middle, outputs);
}

void pair_forward(const float *x, const float *w1, const float *bias1, const float *w2, const float *bias2, float *y,
                  uint8_t *codes1, uint8_t *codes2, float *spectra, float *scratch, Size count, Size height, Size width,
                  Size inputs, Size middle, Size outputs)
{
    const Layer one = layer_of(count, height, width, inputs, middle);
    const Layer two = layer_of(count, one.tall, one.wide, middle, outputs);
    const Size pixels = picture_size(&one), pooled = pooled_size(&one);
    float *kernels = scratch + between(&one);
    narrow_kernels(w1, kernels, &one);
    for (Size first = 0; first < count; first += GROUP) {
        const Size some = at_most_group(count - first);
        narrow_pictures(x + first * pixels, kernels, bias1, scratch, codes1 + first * pooled, some, &one);
        wide_spectra(scratch, spectra, first, some, &two);
    }
    wide_outputs(spectra, w2, bias2, y, codes2, kernels, &two);
}

void pair_backward(const float *x, const float *g, const uint8_t *codes1, const uint8_t *codes2, const float *spectra,
                   const float *w2, float *bias1_gradient, float *kernel1_gradient, float *bias2_gradient,
                   float *kernel2_gradient, float *scratch, Size count, Size height, Size width, Size inputs,
                   Size middle, Size outputs)
{
    const Layer one = layer_of(count, height, width, inputs, middle);
    const Layer two = layer_of(count, one.tall, one.wide, middle, outputs);
    const Size pixels = picture_size(&one), pooled = pooled_size(&one);
    float *sums = scratch + between(&one), *results = sums + narrow_backward_scratch(height, width, inputs, middle);
    wide_gradients(g, codes2, spectra, w2, bias2_gradient, kernel2_gradient, 1, results, &two);
    narrow_begin_gradients(bias1_gradient, sums, &one);
    for (Size first = 0; first < count; first += GROUP) {
        const Size some = at_most_group(count - first);
        wide_picture_gradients(results, scratch, first, some, &two);
        narrow_add_gradients(x + first * pixels, scratch, codes1 + first * pooled, bias1_gradient, sums, some, &one);
    }
    narrow_end_gradients(sums, kernel1_gradient, &one);
}
