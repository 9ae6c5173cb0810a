/* checkkernels.c - every instruction set's inner loops against the scalar reference. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "kernels/kernels.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static uint32_t next(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static size_t pick(size_t low, size_t high)
{
    return low + next() % (high - low + 1);
}

static float gauss(void)
{
    double s = 0;
    for (int i = 0; i < 4; i++) s += (double)next() / 2147483648.0 - 0.5;
    return (float)(s * 1.7);
}

enum fill { SMALL_INTEGERS, GAUSSIAN };

static void fill(float *x, size_t n, enum fill kind)
{
    for (size_t i = 0; i < n; i++)
        x[i] = kind == SMALL_INTEGERS ? (float)(next() % 15) - 7 : gauss();
}

/*
 * Two copies of a result, one a kernel, with zones around them that must stay as they are. They
 * start one float off any alignment; whatever the kernels leave alone must stay equal too.
 */
#define ZONE       67
#define MAX_RESULT 70000
struct pair {
    float *reference, *fast;
    size_t n;
};
static float memory[2][MAX_RESULT + 2 * ZONE + 1];

static struct pair pair_of(size_t n)
{
    for (size_t i = 0; i < n + 2 * ZONE + 1; i++)
        memory[0][i] = memory[1][i] = 1000.0f + (float)(i % 7);
    return (struct pair){memory[0] + ZONE + 1, memory[1] + ZONE + 1, n};
}

static bool zones_intact(struct pair p)
{
    for (size_t i = 0; i < ZONE; i++) {
        size_t after = ZONE + 1 + p.n + i;
        if (memory[1][1 + i] != 1000.0f + (float)((1 + i) % 7) ||
            memory[1][after] != 1000.0f + (float)(after % 7))
            return false;
    }
    return true;
}

/* Set while two fast sets are compared, whose results are the same bits. */
static bool exact;

/* Both NaN, or equal, or within the bound. */
static bool near(float a, float b, double bound)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (exact) return memcmp(&a, &b, sizeof a) == 0;
    return a == b || fabs((double)a - (double)b) <= bound;
}

static void same(struct pair p, const char *what)
{
    size_t wrong = p.n;
    for (size_t i = 0; i < p.n && wrong == p.n; i++) {
        if (!near(p.reference[i], p.fast[i], 0)) wrong = i;
    }
    CHECK(wrong == p.n, "%s: value %zu of %zu is %g, expected %g", what, wrong, p.n,
          (double)p.fast[wrong], (double)p.reference[wrong]);
    CHECK(zones_intact(p), "%s: wrote outside its result", what);
}

static void close_to(struct pair p, double absolute, double relative, const char *what)
{
    size_t wrong = p.n;
    for (size_t i = 0; i < p.n && wrong == p.n; i++) {
        if (!near(p.reference[i], p.fast[i], absolute + relative * fabs((double)p.reference[i])))
            wrong = i;
    }
    CHECK(wrong == p.n, "%s: value %zu of %zu is %.9g, expected %.9g", what, wrong, p.n,
          (double)p.fast[wrong], (double)p.reference[wrong]);
    CHECK(zones_intact(p), "%s: wrote outside its result", what);
}

/* Values where functions break, among ordinary ones. */
static void add_edges(float *x, size_t n)
{
    static const float edges[] = {NAN,         INFINITY,     -INFINITY, 0.0f,     -0.0f,
                                  FLT_MIN / 8, -FLT_MIN / 8, FLT_MAX,   -FLT_MAX, FLT_TRUE_MIN,
                                  88.7f,       -88.7f,       87.3f,     -87.3f,   104,
                                  -104,        1e-20f,       -1e-20f};
    for (size_t i = 0; i < n; i++) {
        if (next() % 3 == 0) x[i] = edges[next() % (sizeof edges / sizeof edges[0])];
    }
}

/* ---- weights ---- */

static float f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double v = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) v = mantissa ? (double)NAN : (double)INFINITY;
    return (float)(bits & 0x8000 ? -v : v);
}

static void check_plain_types(void)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float out, brain, want;
        uint32_t wide = i << 16;
        memcpy(&want, &wide, 4);
        dtype_unpack(DTYPE_F16, &out, &h, 1);
        dtype_unpack(DTYPE_BF16, &brain, &h, 1);
        if (!near(out, f16(h), 0) || !near(brain, want, 0))
            CHECK(false, "half 0x%04x gives %g and %g", i, (double)out, (double)brain);
    }
    static const struct {
        uint8_t bits;
        float e4m3, e5m2;
    } small[] = {{0x00, 0, 0},          {0x01, 0x1p-9f, 0x1p-16f}, {0x38, 1, 0.5f},
                 {0x3c, 1.5f, 1},       {0xbc, -1.5f, -1},         {0x7b, 352, 57344},
                 {0x7e, 448, NAN},      {0x7f, NAN, NAN},          {0xfe, -448, NAN},
                 {0x7c, 384, INFINITY}, {0x08, 0x1p-6f, 0x1p-13f}, {0x07, 0x1.cp-7f, 0x1.cp-14f}};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        float a, b;
        dtype_unpack(DTYPE_F8_E4M3, &a, &small[i].bits, 1);
        dtype_unpack(DTYPE_F8_E5M2, &b, &small[i].bits, 1);
        CHECK(near(a, small[i].e4m3, 0) && near(b, small[i].e5m2, 0), "byte 0x%02x gives %g and %g",
              small[i].bits, (double)a, (double)b);
    }
    double d = 0.1;
    int64_t i64 = -5;
    int32_t i32 = 70000;
    uint8_t u8 = 200;
    float out[4];
    dtype_unpack(DTYPE_F64, &out[0], &d, 1);
    dtype_unpack(DTYPE_I64, &out[1], &i64, 1);
    dtype_unpack(DTYPE_I32, &out[2], &i32, 1);
    dtype_unpack(DTYPE_U8, &out[3], &u8, 1);
    CHECK(out[0] == 0.1f && out[1] == -5 && out[2] == 70000 && out[3] == 200, "plain types");
}

static uint16_t half_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return (uint16_t)((bits >> 16 & 0x8000u) | ((bits >> 23 & 255) - 112) << 10 |
                      (bits >> 13 & 1023));
}

static void put16(uint8_t *p, float v)
{
    uint16_t h = half_of(v);
    memcpy(p, &h, 2);
}

/* Blocks written bit by bit from chosen quants, the other way round from how they are read. */
static void check_blocks(void)
{
    enum { D = 0, M = 1 };
    static const struct {
        enum dtype dtype;
        int bits, offset;
        bool has_min;
    } small[] = {{DTYPE_Q4_0, 4, 8, false},
                 {DTYPE_Q4_1, 4, 0, true},
                 {DTYPE_Q5_0, 5, 16, false},
                 {DTYPE_Q5_1, 5, 0, true}};
    for (size_t t = 0; t < sizeof small / sizeof small[0]; t++) {
        uint8_t block[32] = {0}, *p = block;
        int q[32];
        put16(p, 0.25f), p += 2;
        if (small[t].has_min) put16(p, -3.0f), p += 2;
        uint8_t *high = p;
        if (small[t].bits == 5) p += 4;
        for (int i = 0; i < 32; i++) {
            q[i] = (int)pick(0, small[t].bits == 5 ? 31 : 15);
            p[i % 16] = (uint8_t)(p[i % 16] | (q[i] & 15) << (i < 16 ? 0 : 4));
            if (q[i] & 16) high[i / 8] = (uint8_t)(high[i / 8] | 1 << i % 8);
        }
        CHECK((size_t)(p + 16 - block) == dtype_info(small[t].dtype)->block_bytes, "block size");
        float out[32];
        dtype_unpack(small[t].dtype, out, block, 32);
        for (int i = 0; i < 32; i++) {
            float want = 0.25f * (float)(q[i] - small[t].offset) + (small[t].has_min ? -3.0f : 0);
            CHECK(out[i] == want, "%s: value %d", dtype_info(small[t].dtype)->name, i);
        }
    }
    uint8_t q8[34];
    float out[256];
    put16(q8, 0.5f);
    for (int i = 0; i < 32; i++) q8[2 + i] = (uint8_t)(i * 8 - 128);
    dtype_unpack(DTYPE_Q8_0, out, q8, 32);
    for (int i = 0; i < 32; i++) CHECK(out[i] == 0.5f * (float)(i * 8 - 128), "q8_0: value %d", i);

    uint8_t k4[144] = {0};
    int scale[8], min[8];
    put16(k4, 0.125f), put16(k4 + 2, 0.5f);
    for (int g = 0; g < 8; g++) {
        scale[g] = (int)pick(0, 63), min[g] = (int)pick(0, 63);
        uint8_t *s = k4 + 4;
        if (g < 4) {
            s[g] = (uint8_t)(s[g] | scale[g]), s[g + 4] = (uint8_t)(s[g + 4] | min[g]);
        } else {
            s[g + 4] = (uint8_t)((scale[g] & 15) | (min[g] & 15) << 4);
            s[g - 4] = (uint8_t)(s[g - 4] | (scale[g] >> 4) << 6),
                  s[g] = (uint8_t)(s[g] | (min[g] >> 4) << 6);
        }
    }
    int q[256];
    for (int i = 0; i < 256; i++) {
        q[i] = (int)pick(0, 15);
        uint8_t *byte = k4 + 16 + i / 64 * 32 + i % 32;
        *byte = (uint8_t)(*byte | q[i] << (i % 64 < 32 ? 0 : 4));
    }
    dtype_unpack(DTYPE_Q4_K, out, k4, 256);
    for (int i = 0; i < 256; i++) {
        float want = 0.125f * (float)scale[i / 32] * (float)q[i] - 0.5f * (float)min[i / 32];
        CHECK(out[i] == want, "q4_k: value %d is %g, expected %g", i, (double)out[i], (double)want);
    }

    uint8_t k6[210] = {0};
    put16(k6 + 208, 0.25f);
    for (int g = 0; g < 16; g++) k6[192 + g] = (uint8_t)(int8_t)(g * 15 - 120);
    for (int i = 0; i < 256; i++) {
        q[i] = (int)pick(0, 63);
        int half = i / 128, quarter = i % 128 / 32, j = i % 32;
        uint8_t *low = k6 + half * 64 + quarter % 2 * 32 + j, *high = k6 + 128 + half * 32 + j;
        *low = (uint8_t)(*low | (q[i] & 15) << (quarter / 2 * 4));
        *high = (uint8_t)(*high | (q[i] >> 4) << (quarter * 2));
    }
    dtype_unpack(DTYPE_Q6_K, out, k6, 256);
    for (int i = 0; i < 256; i++)
        CHECK(out[i] == 0.25f * (float)(i / 16 * 15 - 120) * (float)(q[i] - 32), "q6_k: value %d",
              i);

    CHECK(dtype_row_bytes(DTYPE_Q4_K, 512) == 288 && dtype_row_bytes(DTYPE_Q4_K, 300) == 0,
          "rows of blocks");
    CHECK(dtype_row_bytes(N_DTYPES, 1) == 0 && dtype_row_bytes(DTYPE_F64, SIZE_MAX) == 0,
          "impossible rows");
}

static void check_unpack(const struct kernels *s, const struct kernels *f)
{
    static uint8_t bytes[4096 + 1];
    for (int type = 0; type < N_DTYPES; type++) {
        const struct dtype_info *info = dtype_info((enum dtype)type);
        for (int round = 0; round < 20; round++) {
            size_t k = info->block_values * pick(1, info->block_values > 32  ? 3
                                                    : info->block_values > 1 ? 9
                                                                             : 77);
            for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)next();
            struct pair p = pair_of(k);
            s->unpack((enum dtype)type, p.reference, bytes + 1, k);
            f->unpack((enum dtype)type, p.fast, bytes + 1, k);
            same(p, info->name);
        }
    }
    for (int round = 0; round < 30; round++) {
        size_t n = pick(1, GEMM_PANEL), k = pick(1, 70), ld = k + pick(0, 5);
        if (round % 2) n = GEMM_PANEL;
        float *rows = malloc(n * ld * sizeof(float));
        fill(rows, n * ld, GAUSSIAN);
        struct pair p = pair_of(k * GEMM_PANEL);
        s->pack(p.reference, rows, ld, n, k);
        f->pack(p.fast, rows, ld, n, k);
        same(p, "pack");
        free(rows);
    }
}

/* ---- products ---- */

#define MAX_K      1200
#define MAX_ROWS   40
#define MAX_PANELS 5

static void check_gemm(const struct kernels *s, const struct kernels *f, enum fill kind, bool edges)
{
    static float a[MAX_ROWS * (MAX_K + 8) + 1], residual[MAX_ROWS * 128 + 1],
        bias[MAX_PANELS * GEMM_PANEL + 1];
    /* Aligned by hand: 8 floats. */
    static float b_memory[MAX_PANELS * (MAX_K + 3) * GEMM_PANEL + 8],
        partial_memory[MAX_ROWS * GEMM_PARTIAL + 8];
    float *b = b_memory, *partial = partial_memory;
    while ((uintptr_t)b % 32) b++;
    while ((uintptr_t)partial % 32) partial++;
    struct gemm_run runs[6];
    ptrdiff_t row[MAX_ROWS];
    size_t m = pick(1, 20), n_runs = pick(1, 6), k = 0, ld = MAX_K + 3;
    for (size_t i = 0; i < m; i++) row[i] = (ptrdiff_t)((m - 1 - i) * ld); /* in any order */
    for (size_t i = 0; i < n_runs; i++) {
        size_t length = pick(1, i % 2 ? 200 : 20);
        runs[i] = (struct gemm_run){(ptrdiff_t)k, length};
        k += length;
    }
    bool geglu = kind == GAUSSIAN && next() % 4 == 0;
    size_t width = geglu ? GEMM_PANEL / 2 : GEMM_PANEL, panels = next() % 2 ? 1 : pick(2, 5);
    size_t n = panels * width - (next() % 3 ? pick(0, width - 1) : 0), ldc = n + pick(0, 20);
    size_t panel_stride = (k + pick(0, 3)) * GEMM_PANEL;
    fill(a + 1, m * ld, kind), fill(b, panels * panel_stride, kind);
    fill(bias + 1, panels * GEMM_PANEL, kind), fill(residual + 1, MAX_ROWS * 128, kind);
    if (edges) a[1 + (m - 1) * ld] = next() % 2 ? NAN : INFINITY; /* row 0 only */
    struct gemm g = {
        .m = m,
        .a = a + 1,
        .row = row,
        .runs = runs,
        .n_runs = n_runs,
        .b = b,
        .panel_stride = panel_stride,
        .ldc = ldc,
        .n = n,
        .accumulate = !geglu && next() % 3 == 0,
        .bias = next() % 2 ? bias + 1 : NULL,
        .act = kind == GAUSSIAN ? (enum act)pick(0, ACT_RELU) : ACT_NONE,
        .geglu = geglu,
        .residual = next() % 2 ? residual + 1 : NULL,
        .partial = partial,
        .next_b = next() % 2 ? b : NULL,
    };
    struct pair p = pair_of(m * ldc);
    fill(p.reference, m * ldc, kind);
    memcpy(p.fast, p.reference, m * ldc * sizeof(float));
    g.c = p.reference;
    s->gemm(&g);
    g.c = p.fast;
    f->gemm(&g);
    if (kind == SMALL_INTEGERS) {
        same(p, "gemm, integers");
        return;
    }
    double worst = 0; /* of Sum |a b|; a gated product may be as large as its square */
    for (size_t i = edges; i < m; i++) {
        double sum = 0;
        for (size_t j = 0; j < k; j++) sum += fabs((double)a[1 + (m - 1 - i) * ld + j]) * 3;
        if (sum > worst) worst = sum;
    }
    double bound = 4 * sqrt((double)k) * (double)FLT_EPSILON * worst + 1e-6;
    if (geglu) bound *= 4 + sqrt((double)k) * 8;
    close_to(p, bound, 1e-5, edges ? "gemm, NaN in one row" : "gemm");
    for (size_t i = 1; edges && i < m; i++)
        CHECK(isfinite(p.fast[i * ldc]), "gemm: the NaN of row 0 reached row %zu", i);
}

/* ---- element by element ---- */

static void check_rows(const struct kernels *s, const struct kernels *f, size_t n, bool edges)
{
    static float x[2001], y[2001], z[2001];
    fill(x, n + 1, GAUSSIAN), fill(y, n + 1, GAUSSIAN), fill(z, n + 1, GAUSSIAN);
    for (size_t i = 0; i < n; i += 3) x[i + 1] *= 20;
    if (edges) add_edges(x + 1, n);
    for (int act = ACT_NONE; act <= ACT_RELU; act++) {
        struct pair p = pair_of(n);
        s->act(p.reference, x + 1, n, (enum act)act);
        f->act(p.fast, x + 1, n, (enum act)act);
        close_to(p, act == ACT_GELU ? 2e-8 : 1e-36, 6e-7, act == ACT_GELU ? "gelu" : "silu");
        p = pair_of(n);
        s->affine_act(p.reference, x + 1, y + 1, z + 1, n, (enum act)act);
        f->affine_act(p.fast, x + 1, y + 1, z + 1, n, (enum act)act);
        /* One rounding instead of two in x * scale + shift, which the functions then amplify. */
        close_to(p, 2e-5, 4e-6, "affine_act");
    }
    struct pair p = pair_of(n);
    s->add(p.reference, x + 1, y + 1, n), f->add(p.fast, x + 1, y + 1, n);
    same(p, "add");
    p = pair_of(n);
    s->scale(p.reference, x + 1, 0.3f, n), f->scale(p.fast, x + 1, 0.3f, n);
    same(p, "scale");
    CHECK(s->all_finite(x + 1, n) == f->all_finite(x + 1, n), "all_finite of %zu", n);
    if (edges) return;
    CHECK(f->all_finite(x + 1, n), "all_finite: false alarm");
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    x[1 + pick(0, n - 1)] = bad[next() % 3];
    CHECK(!f->all_finite(x + 1, n), "all_finite: missed one of %zu", n);
}

static double gelu_exact(double x)
{
    return 0.5 * x * erfc(-x / sqrt(2));
}

/* The functions over their whole range against double arithmetic. */
static void check_accuracy(const struct kernels *f)
{
    double worst[4] = {0};
    for (int i = -20000; i <= 20000; i++) {
        float x = (float)i * 0.005f, y[4];
        double want[4] = {0, (double)x / (1 + exp(-(double)x)), gelu_exact((double)x),
                          (double)x / (1 + exp(-1.702 * (double)x))};
        for (int act = ACT_SILU; act <= ACT_QUICK_GELU; act++) {
            f->act(&y[act], &x, 1, (enum act)act);
            double scale = fmax(fabs(want[act]), act == ACT_GELU ? 0.05 : 1e-28);
            worst[act] = fmax(worst[act], fabs((double)y[act] - want[act]) / scale);
        }
    }
    CHECK(worst[ACT_SILU] < 4e-7 && worst[ACT_QUICK_GELU] < 8e-6 && worst[ACT_GELU] < 1e-6,
          "%s: errors of silu %g, gelu %g, quick gelu %g", f->level, worst[1], worst[2], worst[3]);
    /* softmax of two scores is 1 and exp(-x). */
    double softmax_worst = 0;
    for (int i = 0; i <= 8000; i++) {
        float row[2] = {0, (float)i * -0.01f}, max = -INFINITY, sum = 0;
        double want = exp((double)row[1]);
        (void)f->softmax(row, 2, 2, 1, &max, &sum);
        softmax_worst = fmax(softmax_worst, fabs((double)row[1] - want) / want / (1 + 0.01 * i));
        CHECK(row[0] == 1 && max == 0, "softmax of the maximum");
    }
    CHECK(softmax_worst < 2.5e-7, "%s: softmax is off by %g times 1 + |x|", f->level,
          softmax_worst);
}

static void check_norms(const struct kernels *s, const struct kernels *f, enum fill kind)
{
    static float x[40 * 700 + 1], weight[700], bias[700];
    static double sums[2][2][701];
    size_t rows = pick(1, 30), c = pick(1, 700);
    fill(x, rows * c + 1, kind), fill(weight, c, kind), fill(bias, c, kind);
    memset(sums, 0, sizeof sums);
    s->moments(sums[0][0], sums[0][1], x + 1, rows, c);
    f->moments(sums[1][0], sums[1][1], x + 1, rows, c);
    size_t wrong = 0;
    for (size_t i = 0; i <= c; i++) {
        for (int j = 0; j < 2; j++)
            wrong += fabs(sums[0][j][i] - sums[1][j][i]) > (exact ? 0 : 1e-12 * (double)rows);
    }
    CHECK(wrong == 0, "moments of %zux%zu: %zu differ", rows, c, wrong);
    struct pair p = pair_of(c);
    s->layer_norm(p.reference, x + 1, c, 1e-5f, weight, bias);
    f->layer_norm(p.fast, x + 1, c, 1e-5f, weight, bias);
    close_to(p, 1e-5, 1e-5, "layer_norm");
}

static void check_softmax(const struct kernels *s, const struct kernels *f, bool edges)
{
    static float scores[600];
    size_t n = pick(0, 500), n_all = n + pick(0, 20);
    fill(scores, n, GAUSSIAN);
    if (edges && n > 0) scores[pick(0, n - 1)] = next() % 2 ? NAN : -INFINITY;
    float max[2], sum[2], factor[2];
    max[0] = max[1] = next() % 2 ? -INFINITY : gauss() * 3;
    sum[0] = sum[1] = max[0] == -INFINITY ? 0 : 3.5f;
    struct pair p = pair_of(n_all);
    memcpy(p.reference, scores, n * sizeof(float)), memcpy(p.fast, scores, n * sizeof(float));
    factor[0] = s->softmax(p.reference, n, n_all, 0.7f, &max[0], &sum[0]);
    factor[1] = f->softmax(p.fast, n, n_all, 0.7f, &max[1], &sum[1]);
    bool has_nan = false;
    for (size_t i = 0; i < n; i++) has_nan = has_nan || isnan(scores[i]);
    if (has_nan) {
        CHECK(isnan(sum[1]), "softmax: a NaN got lost");
        return;
    }
    close_to(p, 1e-37, 2e-6, "softmax");
    CHECK(max[0] == max[1] && near(factor[0], factor[1], 1e-6 * fabs((double)factor[0])) &&
              near(sum[0], sum[1], 4e-6 * fabs((double)sum[0])),
          "softmax of %zu: max %g %g, factor %g %g, sum %g %g", n, (double)max[0], (double)max[1],
          (double)factor[0], (double)factor[1], (double)sum[0], (double)sum[1]);
}

/* ---- Winograd ---- */

static void check_winograd(const struct kernels *s, const struct kernels *f, enum fill kind)
{
    static float x[12 * 12 * 48 + 1], m[36 * 80], bias[65], residual[8 * 8 * 48 + 1];
    size_t c = 8 * pick(1, 5), plane = c + pick(0, 9), pixel = c + pick(0, 5),
           line = 7 * pixel + pick(0, 7);
    fill(x, sizeof x / sizeof x[0], kind), fill(m, sizeof m / sizeof m[0], kind);
    fill(bias, 65, kind), fill(residual, sizeof residual / sizeof residual[0], kind);
    struct pair p = pair_of(36 * plane);
    s->wino_input(p.reference, plane, x + 1, line, pixel, c);
    f->wino_input(p.fast, plane, x + 1, line, pixel, c);
    if (kind == SMALL_INTEGERS)
        same(p, "wino_input, integers");
    else
        close_to(p, 1e-4, 0, "wino_input");
    p = pair_of(36 * plane);
    s->wino_weight(p.reference, plane, x + 1, c);
    f->wino_weight(p.fast, plane, x + 1, c);
    close_to(p, kind == SMALL_INTEGERS ? 1e-5 : 1e-6, 0, "wino_weight");
    p = pair_of(3 * line + 4 * pixel);
    struct wino_output o = {
        .m = m,
        .plane_stride = c + 3,
        .c = c,
        .rows = (int)pick(1, 4),
        .columns = (int)pick(1, 4),
        .row_stride = line,
        .pixel_stride = pixel,
        .bias = next() % 2 ? bias + 1 : NULL,
        .residual = next() % 2 ? residual + 1 : NULL,
        .relu = next() % 2,
    };
    o.y = p.reference, s->wino_output(&o);
    o.y = p.fast, f->wino_output(&o);
    if (kind == SMALL_INTEGERS)
        same(p, "wino_output, integers");
    else
        close_to(p, 1e-3, 0, "wino_output");
}

/* The three transforms together are a 3x3 convolution: 4x4 outputs of one 6x6 tile,
 * by plain loops. */
static void check_winograd_identity(const struct kernels *f)
{
    float d[36 * 8], g[9 * 8], v[36 * 8], u[36 * 8], m[36 * 8], y[16 * 8];
    fill(d, 36 * 8, GAUSSIAN), fill(g, 9 * 8, GAUSSIAN);
    f->wino_input(v, 8, d, 6 * 8, 8, 8);
    f->wino_weight(u, 8, g, 8);
    for (int i = 0; i < 36 * 8; i++) m[i] = v[i] * u[i];
    struct wino_output o = {.m = m,
                            .plane_stride = 8,
                            .c = 8,
                            .rows = 4,
                            .columns = 4,
                            .y = y,
                            .row_stride = 32,
                            .pixel_stride = 8};
    f->wino_output(&o);
    for (int i = 0; i < 16; i++) {
        for (int c = 0; c < 8; c++) {
            double sum = 0;
            for (int t = 0; t < 9; t++)
                sum +=
                    (double)d[((i / 4 + t / 3) * 6 + i % 4 + t % 3) * 8 + c] * (double)g[t * 8 + c];
            CHECK(fabs((double)y[i * 8 + c] - sum) < 2e-5, "%s: Winograd gives %g, expected %g",
                  f->level, (double)y[i * 8 + c], sum);
        }
    }
}

static void check_level(const struct kernels *s, const struct kernels *f)
{
    check_unpack(s, f);
    for (int i = 0; i < 300; i++) {
        check_gemm(s, f, SMALL_INTEGERS, false);
        check_gemm(s, f, GAUSSIAN, false);
        if (i % 10 == 0) check_gemm(s, f, GAUSSIAN, true);
    }
    for (size_t n = 1; n < 70; n++) check_rows(s, f, n, n % 2);
    check_rows(s, f, 2000, false);
    check_accuracy(f);
    for (int i = 0; i < 40; i++) {
        check_norms(s, f, i % 2 ? GAUSSIAN : SMALL_INTEGERS);
        check_softmax(s, f, i % 4 == 3);
        check_winograd(s, f, i % 2 ? GAUSSIAN : SMALL_INTEGERS);
    }
    check_winograd_identity(f);
    CHECK(f->burn(1000) > 1000, "%s: burn", f->level);
}

/* src/kernels/avx512.c compiled against tests/model512: its instructions in plain C. */
void kernels_init_model512(struct kernels *k);

/* Against the reference, and bit by bit against the set before, if that promises the same bits. */
static void check_set(const struct kernels *scalar, const struct kernels *set,
                      const struct kernels *before)
{
    int failed = check_failed;
    check_level(scalar, set);
    exact = before != NULL;
    if (before) check_level(before, set);
    exact = false;
    if (check_failed > failed)
        printf("(level %s%s%s)\n", set->level, before ? ", or before it " : "",
               before ? before->level : "");
}

int main(void)
{
    static const char *const levels[] = {"scalar", "avx2", "avx512", "neon"};
    struct kernels scalar, fast, avx2, avx512;
    CHECK(kernels_init_level(&scalar, "scalar") && strcmp(scalar.level, "scalar") == 0,
          "no scalar level");
    CHECK(!kernels_init_level(&fast, "abacus"), "an unknown level exists");
    kernels_init(&fast, KERNELS_SCALAR);
    CHECK(strcmp(fast.level, "scalar") == 0, "scalar on request");
    check_plain_types();
    check_blocks();
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (kernels_init_level(&fast, levels[i])) check_set(&scalar, &fast, NULL);
    }
    struct kernels model = scalar;
    kernels_init_model512(&model);
    model.level = "avx512, modelled";
    check_set(&scalar, &model, kernels_init_level(&avx2, "avx2") ? &avx2 : NULL);
    if (kernels_init_level(&avx512, "avx512")) {
        check_set(&scalar, &avx512, &avx2);
        check_set(&scalar, &avx512, &model);
    }
    return check_end("checkkernels");
}
