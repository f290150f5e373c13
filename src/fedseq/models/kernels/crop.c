/* Channels-last pictures of bytes, each moved by a few pixels and perhaps mirrored; beyond the edge they are 0. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef ptrdiff_t Size;

static void mirror(uint8_t *row, Size width, Size channels)
{
    for (uint8_t *left = row, *right = row + (width - 1) * channels; left < right; left += channels, right -= channels)
        for (Size c = 0; c < channels; c++) {
            const uint8_t moved = left[c];
            left[c] = right[c], right[c] = moved;
        }
}

/* Pixel (y, x) of picture i is pixel (y + down[i], x + right[i]) of the one it is made of. */
void crop_flip(const uint8_t *pictures, uint8_t *out, const int64_t *down, const int64_t *right, const uint8_t *flipped,
               Size count, Size height, Size width, Size channels)
{
    const Size row = width * channels;
    for (Size i = 0; i < count; i++, pictures += height * row) {
        const Size first = right[i] < 0 ? -right[i] : 0, beyond = right[i] > 0 ? width - right[i] : width;
        for (Size y = 0; y < height; y++, out += row) {
            const Size from = y + down[i];
            memset(out, 0, row);
            if (from >= 0 && from < height && first < beyond)
                memcpy(out + first * channels, pictures + from * row + (first + right[i]) * channels,
                       (beyond - first) * channels);
            if (flipped[i]) mirror(out, width, channels);
        }
    }
}
