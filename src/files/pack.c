/* pack.c - f32 values into the element types of files. */
/* SPDX-License-Identifier: MIT */
#include "files/pack.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void put16(unsigned char *out, uint16_t value)
{
    out[0] = (unsigned char)(value & 0xff);
    out[1] = (unsigned char)(value >> 8);
}

/* IEEE binary16, half to even: 5 exponent bits (bias 15), 10 of mantissa. */
uint16_t pack_f16(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) { /* NaN keeps its upper payload bits and stays NaN */
        uint32_t payload = magnitude >> 13 & 0x3ffu;
        return (uint16_t)(sign | 0x7c00u | (payload ? payload : 0x200u));
    }
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65536 and more, infinity */
    uint32_t mantissa, drop;
    if (magnitude < 0x38800000u) { /* below 2^-14: denormal, in units of 2^-24 */
        uint32_t exponent = magnitude >> 23;
        drop = 126 - exponent;
        if (drop > 24) return (uint16_t)sign;
        mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    } else {
        drop = 13;
        mantissa = magnitude - 0x38000000u; /* the exponent's bias goes from 127 to 15 */
    }
    uint32_t half = 1u << (drop - 1), kept = mantissa >> drop, rest = mantissa & ((1u << drop) - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++; /* a carry into the exponent is right */
    return (uint16_t)(sign | kept);
}

static uint16_t pack_bf16(float x)
{
    uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static float f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    float value =
        exponent ? ldexpf((float)(mantissa | 0x400), exponent - 25) : ldexpf((float)mantissa, -24);
    return h & 0x8000 ? -value : value;
}

/* The nearest whole number from low to high. */
static int nearest(float x, int low, int high)
{
    float r = rintf(x);
    return r < (float)low ? low : r > (float)high ? high : (int)r;
}

static float largest(const float *x, size_t n)
{
    float best = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(best)) best = x[i];
    return best;
}

/* x = d q, q of 8 bits. */
static void pack_q8_0(unsigned char *out, const float *x)
{
    uint16_t d = pack_f16(fabsf(largest(x, 32)) / 127);
    float scale = f16_value(d), inverse = scale > 0 ? 1 / scale : 0;
    put16(out, d);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (unsigned char)(nearest(x[i] * inverse, -127, 127) & 0xff);
}

/* Squared error of x = d (q - 8) with the best q. */
static float error_q4_0(const float *x, float d)
{
    float sum = 0, inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) {
        float e = x[i] - d * (float)nearest(x[i] * inverse, -8, 7);
        sum += e * e;
    }
    return sum;
}

/* x = d (q - 8), q of 4 bits; -8 has no positive twin, so d has the sign that gives it to the
 * largest value. */
static void pack_q4_0(unsigned char *out, const float *x)
{
    float extreme = largest(x, 32) / -8, best = extreme,
          least = error_q4_0(x, f16_value(pack_f16(extreme)));
    for (int i = 1; i <= 8; i++) { /* a smaller step clips the extreme and serves the rest better */
        float d = extreme * (1 - 0.03f * (float)i), e = error_q4_0(x, f16_value(pack_f16(d)));
        if (e >= least) continue;
        least = e;
        best = d;
    }
    uint16_t d = pack_f16(best);
    float scale = f16_value(d), inverse = scale != 0 ? 1 / scale : 0;
    put16(out, d);
    for (int i = 0; i < 16; i++) {
        int low = nearest(x[i] * inverse, -8, 7) + 8,
            high = nearest(x[i + 16] * inverse, -8, 7) + 8;
        out[2 + i] = (unsigned char)(low | high << 4);
    }
}

/* Fits x = scale q - minimum, q from 0 to 15, minimum not negative: a range, then least squares for
 * that q. */
static void fit_q4_k(const float *x, float *scale, float *minimum)
{
    float low = 0, high = 0;
    for (int i = 0; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    *scale = 0;
    *minimum = -low;
    if (high <= low) return;
    float best = INFINITY;
    for (int trial = 0; trial < 12; trial++) {
        float s = (high - low) / (15 + 0.2f * (float)(trial - 6)), m = -low;
        float sq = 0, sqq = 0, sx = 0, sxq = 0;
        for (int i = 0; i < 32; i++) {
            float q = (float)nearest((x[i] + m) / s, 0, 15);
            sq += q;
            sqq += q * q;
            sx += x[i];
            sxq += x[i] * q;
        }
        float determinant = 32 * sqq - sq * sq; /* normal equations of x = s q - m */
        if (determinant > 0) {
            float fitted = (32 * sxq - sq * sx) / determinant, offset = (sq * fitted - sx) / 32;
            if (fitted > 0 && offset >= 0) s = fitted, m = offset;
        }
        float error = 0;
        for (int i = 0; i < 32; i++) {
            float e = x[i] - (s * (float)nearest((x[i] + m) / s, 0, 15) - m);
            error += e * e;
        }
        if (error >= best) continue;
        best = error;
        *scale = s;
        *minimum = m;
    }
}

/*
 * 256 values in 8 groups of 32: x = d a_g q - e b_g, q of 4 bits, a and b of 6 bits, d and e f16.
 * The 16 six-bit numbers lie in 12 bytes: the first four of each whole, the others with their upper
 * two bits in the first eight bytes.
 */
static void pack_q4_k(unsigned char *out, const float *x)
{
    float scale[8], minimum[8], top_scale = 0, top_minimum = 0;
    for (int g = 0; g < 8; g++) {
        fit_q4_k(x + 32 * g, &scale[g], &minimum[g]);
        top_scale = fmaxf(top_scale, scale[g]);
        top_minimum = fmaxf(top_minimum, minimum[g]);
    }
    uint16_t d = pack_f16(top_scale / 63), e = pack_f16(top_minimum / 63);
    float unit = f16_value(d), unit_minimum = f16_value(e);
    unsigned char *sixes = out + 4, *quants = out + 16;
    memset(out, 0, 144);
    put16(out, d);
    put16(out + 2, e);
    for (int g = 0; g < 8; g++) {
        int a = unit > 0 ? nearest(scale[g] / unit, 0, 63) : 0;
        int b = unit_minimum > 0 ? nearest(minimum[g] / unit_minimum, 0, 63) : 0;
        if (g < 4) {
            sixes[g] |= (unsigned char)a;
            sixes[g + 4] |= (unsigned char)b;
        } else {
            sixes[g + 4] |= (unsigned char)((a & 15) | (b & 15) << 4);
            sixes[g - 4] |= (unsigned char)(a >> 4 << 6);
            sixes[g] |= (unsigned char)(b >> 4 << 6);
        }
        float s = unit * (float)a, m = unit_minimum * (float)b, inverse = s > 0 ? 1 / s : 0;
        for (int i = 0; i < 32; i++) {
            int q = nearest((x[32 * g + i] + m) * inverse, 0, 15);
            quants[g / 2 * 32 + i] |= (unsigned char)(g % 2 ? q << 4 : q);
        }
    }
}

bool pack_can(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_Q8_0 ||
           dtype == DTYPE_Q4_0 || dtype == DTYPE_Q4_K;
}

/* Scales are f16, so a block whose scale overflows would be infinite or NaN throughout. */
static bool blocks_fit(enum dtype dtype, const float *x, size_t n)
{
    float steps = dtype == DTYPE_Q8_0 ? 127 : dtype == DTYPE_Q4_0 ? 8 : 63;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) < 65504 * steps)) return false;
    return true;
}

bool pack_row(enum dtype dtype, void *out, const float *x, size_t n)
{
    unsigned char *to = out;
    bool fits = true;
    switch (dtype) {
    case DTYPE_F32:
        memcpy(out, x, n * sizeof *x);
        return true;
    case DTYPE_F16:
        for (size_t i = 0; i < n; i++) {
            uint16_t h = pack_f16(x[i]);
            if ((h & 0x7fff) == 0x7c00 && !isinf(x[i])) fits = false;
            put16(to + 2 * i, h);
        }
        return fits;
    case DTYPE_BF16:
        for (size_t i = 0; i < n; i++) put16(to + 2 * i, pack_bf16(x[i]));
        return true;
    case DTYPE_Q8_0:
        fits = blocks_fit(dtype, x, n);
        for (size_t i = 0; fits && i < n / 32; i++) pack_q8_0(to + 34 * i, x + 32 * i);
        return fits;
    case DTYPE_Q4_0:
        fits = blocks_fit(dtype, x, n);
        for (size_t i = 0; fits && i < n / 32; i++) pack_q4_0(to + 18 * i, x + 32 * i);
        return fits;
    case DTYPE_Q4_K:
        fits = blocks_fit(dtype, x, n);
        for (size_t i = 0; fits && i < n / 256; i++) pack_q4_k(to + 144 * i, x + 256 * i);
        return fits;
    default:
        return false;
    }
}
