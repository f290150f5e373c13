/* A step of SGD with weight decay in one pass over memory: w <- w - lr * (g + decay * w).

   The results are PyTorch's to the bit: it computes g + decay * w, then w - lr * that, each by a fused multiplication
   and addition where the CPU has one. */

#include <stddef.h>

static inline float multiply_add(float a, float b, float c)
{
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

void descend(float *restrict weights, const float *restrict gradient, float lr, float decay, ptrdiff_t count)
{
    if (decay == 0) /* not "+ 0 * w": a weight may be infinite */
        for (ptrdiff_t i = 0; i < count; i++) weights[i] = multiply_add(gradient[i], -lr, weights[i]);
    else
        for (ptrdiff_t i = 0; i < count; i++)
            weights[i] = multiply_add(multiply_add(weights[i], decay, gradient[i]), -lr, weights[i]);
}
