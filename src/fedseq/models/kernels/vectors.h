/* Vectors of WIDTH floats, and blocks of 16 channels made of them.

   Everything that is computed with them is computed lane by lane, and a multiplication and an addition are joined where
   the source says so and nowhere else (the compiler is told -ffp-contract=off). So the numbers are the same to the bit
   for every width, compiler and optimisation. */

#ifndef VECTORS_H
#define VECTORS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined __FMA__ && defined __AVX2__
#include <immintrin.h>
#if !defined WIDTH && defined __AVX512F__
#define WIDTH 16
#elif !defined WIDTH
#define WIDTH 8
#endif
#elif defined __aarch64__
#include <arm_neon.h>
#undef WIDTH
#define WIDTH 4
#else
#error "this CPU has neither AVX2 with FMA nor NEON"
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { BLOCK = 16, PARTS = BLOCK / WIDTH };

typedef ptrdiff_t Size;
typedef float Vector __attribute__((vector_size(4 * WIDTH)));
typedef float Unaligned __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

INLINE Vector load(const float *from) { return *(const Unaligned *)from; }
INLINE void store(float *to, Vector x) { *(Unaligned *)to = x; }
INLINE Vector all(float x) { return x - (Vector){0}; } /* "- 0" keeps the sign of -0 */

/* a * b + c and c - a * b, rounded once. */
#if WIDTH == 16
INLINE Vector madd(Vector a, Vector b, Vector c) { return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE Vector nmadd(Vector a, Vector b, Vector c) { return (Vector)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c); }
#elif WIDTH == 8
INLINE Vector madd(Vector a, Vector b, Vector c) { return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE Vector nmadd(Vector a, Vector b, Vector c) { return (Vector)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c); }
#elif defined __aarch64__
INLINE Vector madd(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
INLINE Vector nmadd(Vector a, Vector b, Vector c) { return vfmsq_f32(c, a, b); }
#else
INLINE Vector madd(Vector a, Vector b, Vector c) { return (Vector)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c); }
INLINE Vector nmadd(Vector a, Vector b, Vector c) { return (Vector)_mm_fnmadd_ps((__m128)a, (__m128)b, (__m128)c); }
#endif

#endif
