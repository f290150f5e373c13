/* What the two kinds of layers are made of: what is done once for a batch, and what for some of its pictures. */

#ifndef LAYERS_H
#define LAYERS_H

#include "vectors.h"

typedef struct {
    Size count, height, width, inputs, outputs;
    Size tall, wide; /* the pooled picture */
} Layer;

INLINE Layer layer_of(Size count, Size height, Size width, Size inputs, Size outputs)
{
    return (Layer){count, height, width, inputs, outputs, (height - 4) / 2, (width - 4) / 2};
}

INLINE Size picture_size(const Layer *layer) { return layer->height * layer->width * layer->inputs; }
INLINE Size pooled_size(const Layer *layer) { return layer->tall * layer->wide * layer->outputs; }

/* A layer with few input channels. Sizes are those of scratch memory, in floats. */
Size narrow_forward_scratch(Size inputs, Size outputs);
Size narrow_backward_scratch(Size height, Size width, Size inputs, Size outputs);
void narrow_kernels(const float *w, float *scratch, const Layer *layer);
void narrow_picture(const float *x, const float *scratch, const float *bias, float *y, uint8_t *codes,
                    const Layer *layer);
void narrow_begin_gradients(float *bias_gradient, float *scratch, const Layer *layer);
void narrow_add_gradient(const float *x, const float *g, const uint8_t *codes, float *bias_gradient, float *scratch,
                         const Layer *layer);
void narrow_end_gradients(const float *scratch, float *kernel_gradient, const Layer *layer);

/* A layer with many channels. */
Size wide_halves_size(Size count, Size inputs);
Size wide_forward_scratch(Size count, Size inputs, Size outputs);
Size wide_backward_scratch(Size count, Size inputs, Size outputs);
void wide_begin(const float *picture, float *halves, Size number, const Layer *layer);
void wide_outputs(const float *halves, const float *w, const float *bias, float *y, uint8_t *codes, float *scratch,
                  const Layer *layer);
void wide_gradients(const float *g, const uint8_t *codes, const float *halves, const float *w, float *bias_gradient,
                    float *kernel_gradient, int of_pictures, float *scratch, const Layer *layer);
void wide_picture_gradient(const float *scratch, float *gradient, Size number, const Layer *layer);

#endif
