/* checkrng.c - the generators against torch's CPU and CUDA numbers. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "golden.h"

#include "base/rng.h"

#define FOLDER "tests/golden/rng/"
enum { MAX = 16384 };

static void check_words(const struct golden *g)
{
    size_t n;
    float *bits = golden_get(g, &n, "mt.u32.seed42");
    struct rng rng;
    rng_seed(&rng, RNG_CPU, 42);
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t want;
        memcpy(&want, bits + i, 4);
        wrong += want != rng_u32(&rng);
    }
    CHECK(n == 1300 && wrong == 0, "%zu of %zu raw words differ", wrong, n);
    free(bits);
}

/*
 * Every "randn.seedS.nN" of the file; few values are exact to one rounding, many to libm's last
 * digits.
 */
static void check_single_draws(const struct golden *g)
{
    const char *name;
    json_t *entry;
    int seen = 0;
    json_object_foreach(g->header, name, entry)
    {
        unsigned long long seed;
        size_t n, wanted;
        if (sscanf(name, "randn.seed%llu.n%zu", &seed, &wanted) != 2) continue;
        float *want = golden_get(g, &n, "%s", name), *got = malloc(n * sizeof *got);
        struct rng rng;
        rng_seed(&rng, RNG_CPU, seed);
        rng_normal(&rng, got, n);
        double distance = check_distance(got, want, n);
        CHECK(n == wanted && distance <= (n < 16 ? 2.5e-7 : 2e-6), "%s: %g", name, distance);
        free(want);
        free(got);
        seen++;
    }
    CHECK(seen >= 40, "only %d draws found", seen);
}

/*
 * Successive draws from one generator: the sine left over by the scalar path waits across
 * tensors.
 */
static void check_sequences(const struct golden *g)
{
    for (char letter = 'A'; letter <= 'E'; letter++) {
        struct rng rng;
        rng_seed(&rng, RNG_CPU, 1234);
        for (int i = 0; i < 8; i++) {
            static const size_t SIZES[] = {1, 2, 3, 5, 15, 16, 17, 20, 64, 256};
            for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; k++) {
                size_t n;
                float *want = golden_get(g, &n, "seq%c.%d.n%zu", letter, i, SIZES[k]), got[256];
                if (want == NULL) continue;
                rng_normal(&rng, got, n);
                CHECK(check_distance(got, want, n) <= 2e-6, "sequence %c draw %d of %zu", letter, i,
                      n);
                free(want);
            }
        }
    }
}

static void check_philox(const struct golden *g)
{
    static const uint64_t SEEDS[] = {0, 1, 42, 2147483648u, 9223372036854775807u};
    for (size_t s = 0; s < sizeof SEEDS / sizeof *SEEDS; s++) {
        struct rng rng;
        rng_seed(&rng, RNG_NV, SEEDS[s]);
        for (int call = 0; call < 3; call++) {
            size_t n;
            float *want = golden_get(g, &n, "philox.seed%llu.offset%d.n1024",
                                     (unsigned long long)SEEDS[s], call);
            float got[1024];
            rng_normal(&rng, got, 1024);
            CHECK(n == 1024 && check_distance(got, want, n) <= 2e-6, "philox seed %llu call %d",
                  (unsigned long long)SEEDS[s], call);
            free(want);
        }
    }
}

/*
 * What no golden file says: a copy is an independent continuation; a draw of nothing changes
 * nothing; moments.
 */
static void check_habits(void)
{
    struct rng a, b;
    static float x[MAX], y[MAX];
    for (int kind = 0; kind < 2; kind++) {
        rng_seed(&a, kind ? RNG_NV : RNG_CPU, 7);
        rng_normal(&a, x, 5);
        b = a;
        rng_normal(&b, y, 0);
        rng_normal(&a, x, 37);
        rng_normal(&b, y, 37);
        CHECK(memcmp(x, y, 37 * sizeof *x) == 0, "a copied generator of kind %d goes another way",
              kind);
        rng_normal(&a, x, MAX);
        double sum = 0, squares = 0;
        for (int i = 0; i < MAX; i++) sum += x[i], squares += (double)x[i] * x[i];
        CHECK(fabs(sum / MAX) < 0.03 && fabs(squares / MAX - 1) < 0.04,
              "kind %d: mean %g, variance %g", kind, sum / MAX, squares / MAX);
    }
    rng_seed(&a, RNG_CPU, 42);
    rng_seed(&b, RNG_CPU, (UINT64_C(1) << 32) + 42);
    CHECK(rng_u32(&a) == rng_u32(&b), "torch seeds with the low 32 bits");
}

int main(void)
{
    struct golden torch = golden_open(FOLDER "torch_cpu.safetensors"),
                  cuda = golden_open(FOLDER "philox_cuda.safetensors");
    check_words(&torch);
    check_single_draws(&torch);
    check_sequences(&torch);
    check_philox(&cuda);
    check_habits();
    golden_close(&torch);
    golden_close(&cuda);
    return check_end("checkrng");
}
