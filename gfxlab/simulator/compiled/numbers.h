/* Numbers in words of 32 bits: what numpy gives, bit by bit. */

#ifndef GFXLAB_NUMBERS_H
#define GFXLAB_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;

#if defined(__GNUC__)
#define ALWAYS static inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define ALWAYS static __forceinline
#else
#define ALWAYS static inline
#endif

ALWAYS float f32_of(u32 bits) { float x; memcpy(&x, &bits, 4); return x; }
ALWAYS u32 bits_of(float x) { u32 bits; memcpy(&bits, &x, 4); return bits; }
ALWAYS u32 word_if(int condition) { return 0u - (u32)(condition != 0); }
ALWAYS u32 either(u32 mask, u32 yes, u32 no) { return ((no ^ yes) & mask) ^ no; }
ALWAYS u64 pair(u32 low, u32 high) { return (u64)high << 32 | low; }

/* float16 and bfloat16 */

ALWAYS float f32_of_half(u32 half)
{
    const u32 smallest = 113u << 23;
    u32 bits = (half & 0x7FFF) << 13, exponent = bits & (0x7C00u << 13);
    u32 normal = bits + (112u << 23);
    u32 special = normal + (112u << 23);
    u32 tiny = bits_of(f32_of(normal + (1u << 23)) - f32_of(smallest));
    u32 result = exponent == (0x7C00u << 13) ? special : exponent == 0 ? tiny : normal;
    return f32_of(result | (half & 0x8000) << 16);
}

/* To nearest, ties to even; a NaN keeps what has room of its bits. */
ALWAYS u32 half_of(float x)
{
    const u32 magic = 126u << 23; /* one unit of it is float16's smallest number */
    u32 bits = bits_of(x), size = bits & 0x7FFFFFFF;
    u32 tiny = bits_of(f32_of(size) + f32_of(magic)) - magic;
    u32 normal = (size - (112u << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
    u32 nan = 0x7C00 + ((size & 0x7FFFFF) >> 13);
    u32 result = size < (113u << 23) ? tiny : normal;
    result = size >= (143u << 23) ? 0x7C00 : result;
    nan = nan == 0x7C00 ? 0x7C01 : nan;
    result = size > 0x7F800000 ? nan : result;
    return result | (bits >> 16 & 0x8000);
}

ALWAYS u32 half_toward_zero(float x)
{
    u32 half = half_of(x);
    return half - (fabsf(f32_of_half(half)) > fabsf(x) ? 1 : 0);
}

ALWAYS u32 brain_of(float x)
{
    u32 bits = bits_of(x);
    u32 rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return x != x ? (bits >> 16 | 0x40) : rounded;
}

/* Extremes: `larger` takes a number rather than NaN, `largest` NaN; both +0 rather than -0. */

ALWAYS float larger(float a, float b)
{
    float most = b != b ? a : a > b ? a : b;
    return a == b ? f32_of(bits_of(a) & bits_of(b)) : most;
}

ALWAYS float smaller(float a, float b)
{
    float least = b != b ? a : a < b ? a : b;
    return a == b ? f32_of(bits_of(a) | bits_of(b)) : least;
}

ALWAYS float largest(float a, float b) { return a != a || b != b ? a + b : larger(a, b); }
ALWAYS float smallest(float a, float b) { return a != a || b != b ? -(-a + -b) : smaller(a, b); }

/* What a function makes of x: of a NaN a quiet one, which compilers that round by integers leave as it is. */
ALWAYS float or_quiet(float x, float result) { return x != x ? f32_of(bits_of(x) | 0x00400000) : result; }

/* 2^x, as vector_float.py has it: term by term the same, for all of it is compared bit by bit. */
ALWAYS u32 power_of_two(float x)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer, in the lowest bits */
    double a = x != x ? 0 : x < -200 ? -200 : x > 200 ? 200 : x;
    double shifted = a + round, rest = a - (shifted - round), scale;
    u64 bits;
    memcpy(&bits, &shifted, 8);
    bits = (bits + 1023) << 52;
    memcpy(&scale, &bits, 8);
    double series = rest * 1.3215486790144305e-06;
    series = (series + 1.5252733804059838e-05) * rest;
    series = (series + 0.00015403530393381606) * rest;
    series = (series + 0.0013333558146428441) * rest;
    series = (series + 0.009618129107628477) * rest;
    series = (series + 0.055504108664821576) * rest;
    series = (series + 0.2402265069591007) * rest;
    series = (series + 0.6931471805599453) * rest;
    return bits_of(or_quiet(x, (float)((series + 1) * scale)));
}

/* Integers */

ALWAYS i32 signed_of(u32 x) { return (i32)x; }
ALWAYS i32 short_of(u32 x) { return (i32)(x << 16) >> 16; }
ALWAYS i32 signed24(u32 x) { return (i32)(x << 8) >> 8; }
ALWAYS u32 shift_right_signed(u32 x, u32 n) { return (u32)((i32)x >> n); }

ALWAYS double within(double x, double low, double high)
{
    return x != x ? 0 : x < low ? low : x > high ? high : x;
}

/* Toward zero, at the ends of the range where it would leave it, NaN is 0. */
ALWAYS u32 i32_of(float x) { return (u32)(i32)within(x, -2147483648.0, 2147483647.0); }
ALWAYS u32 u32_of(float x) { return (u32)(i64)within(x, 0.0, 4294967295.0); }

ALWAYS u32 extract(u32 x, u32 offset, u32 width) { return x >> (offset & 31) & ((1u << (width & 31)) - 1); }

ALWAYS u32 extract_signed(u32 x, u32 offset, u32 width)
{
    u32 at = offset & 31, bits = width & 31, room = 32 - at;
    u32 unused = 32 - (bits < room ? bits : room);
    u32 field = shift_right_signed(x << ((unused - at) & 31), unused & 31);
    return bits == 0 ? 0 : field;
}

ALWAYS u32 reversed(u32 x)
{
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0F0F0F0F) | (x & 0x0F0F0F0F) << 4;
    x = (x >> 8 & 0x00FF00FF) | (x & 0x00FF00FF) << 8;
    return x >> 16 | x << 16;
}

ALWAYS u32 ones(u32 x)
{
    x -= x >> 1 & 0x55555555;
    x = (x & 0x33333333) + (x >> 2 & 0x33333333);
    return ((x + (x >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}

/* v_perm_b32: one byte of the selector picks a byte of high:low, a sign eight times, or a constant. */
ALWAYS u32 picked(u32 high, u32 low, u32 selector)
{
    u64 both = pair(low, high);
    u32 result = 0;
    for (int place = 0; place < 32; place += 8) {
        u32 chosen = selector >> place & 0xFF;
        u32 word = chosen >= 10 ? high : low;
        u32 byte = (u32)(both >> (8 * (chosen & 7))) & 0xFF;
        u32 sign = (word >> (chosen & 1 ? 31 : 15) & 1) * 0xFF;
        byte = chosen < 8 ? byte : chosen < 12 ? sign : chosen == 12 ? 0 : 0xFF;
        result |= byte << place;
    }
    return result;
}

/* a * 2^n with one rounding: exact in float64, as far as float32 goes. */
ALWAYS float scaled(float a, i32 n)
{
    i32 power = n < -320 ? -320 : n > 320 ? 320 : n;
    u64 bits = (u64)(power + 1023) << 52;
    double factor;
    memcpy(&factor, &bits, 8);
    return (float)((double)a * factor);
}

ALWAYS i32 greatest(i32 a, i32 b, i32 c)
{
    i32 most = a > b ? a : b;
    return most > c ? most : c;
}

/* ---- division (v_div_scale, v_div_fmas, v_div_fixup of float32); see vector_divide.py ------------------------------- */

#define NAN_BITS 0x7FC00000u
#define INFINITY_BITS 0x7F800000u
#define SMALLEST_NORMAL 0x1p-126

ALWAYS i32 exponent_of(u32 x) { return (i32)(x >> 23 & 0xFF); }

ALWAYS int scales_as_usual(u32 numerator, u32 denominator)
{
    i32 top = exponent_of(numerator), bottom = exponent_of(denominator), apart = top - bottom;
    return (top > 23) & (top < 255) & (bottom > 0) & (bottom < 252) & (apart < 96) & (apart > -124);
}

static inline u32 scaled_to_divide(u32 chosen, u32 denominator, u32 numerator, u32 *marked)
{
    double bottom = f32_of(denominator), top = f32_of(numerator), quotient = top / bottom;
    i32 apart = exponent_of(numerator) - exponent_of(denominator);
    u32 up = bits_of(scaled(f32_of(chosen), 64)), down = bits_of(scaled(f32_of(chosen), -64));
    int tiny_reciprocal = fabs(1 / bottom) < SMALLEST_NORMAL;
    int tiny_quotient = apart <= -126 || (quotient != 0 && fabs(quotient) < SMALLEST_NORMAL);
    *marked = 0;
    if (scales_as_usual(numerator, denominator))
        return chosen;
    *marked = ~0u;
    if (bottom == 0 || top == 0)
        return NAN_BITS;
    if (apart >= 96)
        return chosen == denominator ? up : chosen;
    if (exponent_of(denominator) == 0) {
        *marked = 0;
        return up;
    }
    if (tiny_reciprocal && tiny_quotient)
        return chosen == denominator ? down : chosen;
    if (tiny_reciprocal) {
        *marked = 0;
        return down;
    }
    if (tiny_quotient)
        return chosen == numerator ? up : chosen;
    *marked = 0;
    return exponent_of(numerator) <= 23 ? up : chosen;
}

/* A sum of two float64 as float32 with one rounding: to odd first, which the second rounding cannot take for a tie. */
static inline float rounded_once(double a, double b)
{
    double total = a + b, part = total - a, lost = (a - (total - part)) + (b - part);
    u64 bits;
    memcpy(&bits, &total, 8);
    if (lost != 0 && lost == lost && fabs(total) < HUGE_VAL && !(bits & 1))
        bits += (lost > 0) == (total > 0) ? 1 : (u64)-1;
    memcpy(&total, &bits, 8);
    return (float)total;
}

static inline float last_step(float a, float b, float c, u32 marked)
{
    double factor = exponent_of(bits_of(c)) > 127 ? 0x1p64 : 0x1p-64;
    return marked ? rounded_once((double)a * factor * b, c * factor) : fmaf(a, b, c);
}

ALWAYS int divides_as_usual(u32 numerator, u32 denominator)
{
    i32 top = exponent_of(numerator), bottom = exponent_of(denominator);
    return (top > 0) & (top < 255) & (bottom > 0) & (bottom < 255) & (top - bottom <= 127);
}

static inline u32 fixed_quotient(u32 quotient, u32 denominator, u32 numerator)
{
    float top = f32_of(numerator), bottom = f32_of(denominator);
    u32 sign = (numerator ^ denominator) & 0x80000000, size = quotient & 0x7FFFFFFF;
    int infinite_top = (numerator & 0x7FFFFFFF) == INFINITY_BITS;
    int infinite_bottom = (denominator & 0x7FFFFFFF) == INFINITY_BITS;
    if (divides_as_usual(numerator, denominator) && size <= INFINITY_BITS)
        return size | sign;
    if (top != top)
        return numerator;
    if (bottom != bottom)
        return denominator;
    if ((bottom == 0 && top == 0) || (infinite_bottom && infinite_top))
        return NAN_BITS;
    if (bottom == 0 || infinite_top)
        return sign | INFINITY_BITS;
    if (infinite_bottom || top == 0)
        return sign;
    return sign | (size > INFINITY_BITS ? INFINITY_BITS : size);
}

#endif
