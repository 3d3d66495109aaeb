/* A uniform cluster as the file that docs/clusters.md describes. Exact: reading gives the same numbers. */
#include "driver/profile.h"

#include <inttypes.h>
#include <string.h>

/* base units * 1000^i */
static const char *const rates[] = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", NULL};
static const char *const works[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", NULL};
static const char *const bandwidths[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", NULL};
static const char *const sizes[] = {"B", "kB", "MB", "GB", "TB", "PB", NULL};
static const char *const elements[] = {"/s", "k/s", "M/s", "G/s", "T/s", NULL};
static const char *const times[] = {"ps", "ns", "us", "ms", "s", NULL};

/* Before a value: the largest unit of which it is one at least; all its digits, so that nothing is rounded. */
static void add_quantity(ap_text *t, int64_t value, const char *const *unit)
{
    int64_t size = 1;
    int i = 0;
    for (; unit[i + 1] && value / size >= 1000; i++)
        size *= 1000;
    char digits[32] = "";
    int n = snprintf(digits, sizeof digits, "%0*" PRId64, 3 * i, value % size);
    while (n > 0 && digits[n - 1] == '0')
        digits[--n] = 0;
    if (i == 0)
        digits[0] = 0;
    ap_text_addf(t, "%" PRId64 "%s%s %s", value / size, *digits ? "." : "", digits, unit[i]);
}

static void add_fraction(ap_text *t, double x)
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%.9f", x);
    while (n > 1 && digits[n - 1] == '0' && digits[n - 2] != '.')
        digits[--n] = 0;
    ap_text_add(t, digits);
}

static void add_peak(ap_text *t, const ap_cluster *c)
{
    ap_text_add(t, "      peak: {f32: ");
    add_quantity(t, c->flops_per_second[AP_F32], rates);
    for (int d = 1; d < AP_DTYPE_COUNT; d++)
        if (d != AP_F32 && c->flops_per_second[d]) {
            ap_text_addf(t, ", %s: ", ap_dtype_str((ap_dtype)d));
            add_quantity(t, c->flops_per_second[d], rates);
        }
    ap_text_add(t, "}\n      vector: ");
    add_quantity(t, c->vector_flops_per_second, rates);
    ap_text_add(t, "\n");
    if (c->function_flops_per_second > 0) {
        ap_text_add(t, "      functions: ");
        add_quantity(t, c->function_flops_per_second, rates);
        ap_text_add(t, "\n");
    }
    if (c->lanes > 0)
        ap_text_addf(t, "      lanes: %d\n", (int)c->lanes);
    if (c->fold_ps > 0) {
        ap_text_add(t, "      fold: ");
        add_quantity(t, c->fold_ps, times);
        ap_text_add(t, "\n");
    }
}

static void add_efficiency(ap_text *t, const ap_cluster *c)
{
    ap_text_add(t, "      efficiency: ");
    if (c->nreached == 0)
        add_fraction(t, c->contract_efficiency);
    for (int32_t i = 0; i < c->nreached; i++) {
        ap_text_add(t, i ? ",\n                   {work: " : "[{work: ");
        add_quantity(t, c->reached[i].flops, works);
        ap_text_add(t, ", reached: ");
        add_fraction(t, c->reached[i].fraction);
        ap_text_add(t, i + 1 < c->nreached ? "}" : "}]");
    }
    ap_text_add(t, "\n");
}

/* `, key: 3 us` and the like; `first` has no comma, and what is 0 is left out. */
static bool add_entry(ap_text *t, const char *key, int64_t value, const char *const *unit, bool first)
{
    if (value <= 0)
        return first;
    ap_text_addf(t, "%s%s: ", first ? "" : ", ", key);
    if (unit)
        add_quantity(t, value, unit);
    else
        ap_text_addf(t, "%" PRId64, value);
    return false;
}

static void add_products(ap_text *t, const ap_cluster *c)
{
    if (c->tile_columns <= 0 && c->tile_depth <= 0 && c->product_call_ps <= 0)
        return;
    ap_text_add(t, "      products: {");
    bool first = add_entry(t, "columns", c->tile_columns, NULL, true);
    first = add_entry(t, "depth", c->tile_depth, NULL, first);
    add_entry(t, "call", c->product_call_ps, times, first);
    ap_text_add(t, "}\n");
}

/* As one number where all kinds are alike and nothing else is said. */
static void add_convolutions(ap_text *t, const ap_cluster *c)
{
    static const char *const key[] = {"{spatial: ", ", pointwise: ", ", depthwise: "};
    const double *part = &c->conv_efficiency[AP_PRODUCT_SPATIAL];
    if (part[0] <= 0 || part[1] <= 0 || part[2] <= 0)
        return;
    bool one = part[0] >= part[1] && part[0] <= part[1] && part[0] >= part[2] && part[0] <= part[2];
    one = one && c->conv_call_ps <= 0 && c->conv_step_elements_per_second <= 0;
    ap_text_add(t, "      convolutions: ");
    for (int k = 0; k < (one ? 1 : 3); k++) {
        ap_text_add(t, one ? "" : key[k]);
        add_fraction(t, part[k]);
    }
    if (!one) {
        add_entry(t, "call", c->conv_call_ps, times, false);
        add_entry(t, "steps", c->conv_step_elements_per_second, elements, false);
        ap_text_add(t, "}");
    }
    ap_text_add(t, "\n");
}

static void add_tier(ap_text *t, const ap_memory_tier *m, bool first, bool last)
{
    ap_text_addf(t, "%s{name: %s, capacity: ", first ? "      memory: [" : "               ", m->name);
    add_quantity(t, m->bytes, sizes);
    ap_text_add(t, ", bandwidth: ");
    add_quantity(t, m->bytes_per_second, bandwidths);
    if (m->latency_ps) {
        ap_text_add(t, ", latency: ");
        add_quantity(t, m->latency_ps, times);
    }
    if (m->shared_by > 1)
        ap_text_addf(t, ", shared_by: %d", m->shared_by);
    ap_text_add(t, last ? "}]\n" : "},\n");
}

static void add_memory(ap_text *t, const ap_cluster *c)
{
    for (int32_t i = 0; i < c->ncaches; i++) {
        ap_text_add(t, i == 0 ? c->ncaches > 1 ? "      cache: [{capacity: " : "      cache: {capacity: "
                              : ",\n              {capacity: ");
        add_quantity(t, c->cache[i].bytes, sizes);
        ap_text_add(t, ", bandwidth: ");
        add_quantity(t, c->cache[i].bytes_per_second, bandwidths);
        ap_text_add(t, i + 1 < c->ncaches ? "}" : c->ncaches > 1 ? "}]\n" : "}\n");
    }
    ap_text_add(t, "      launch: ");
    add_quantity(t, c->launch_ps, times);
    ap_text_addf(t, "\n      transfers: %s\n", c->transfers_wait ? "wait" : "overlap");
    ap_text_add(t, c->cpu ? "" : "      kind: gpu\n");
    const ap_memory_tier only = {"DRAM", c->memory_bytes, c->memory_bytes_per_second, 0, 1};
    for (int32_t i = 0; i < ap_max_i64(c->ntiers, 1); i++)
        add_tier(t, c->ntiers ? &c->tier[i] : &only, i == 0, i + 1 >= c->ntiers);
}

static void add_comment(ap_text *t, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, "\n");
        ap_text_add(t, "# ");
        ap_text_add_n(t, s, n);
        ap_text_add(t, "\n");
        s += n + (s[n] == '\n');
    }
}

void ap_profile_file(const ap_cluster *c, const char *comment, ap_text *out)
{
    add_comment(out, comment);
    ap_text_addf(out, "name: %s\ngroups:\n  - hosts: 1\n    devices_per_host: %d\n    device:\n", c->name,
                 c->devices_per_host);
    add_peak(out, c);
    add_efficiency(out, c);
    add_products(out, c);
    add_convolutions(out, c);
    add_memory(out, c);
    ap_text_add(out, "links:\n  devices: {latency: ");
    add_quantity(out, c->inside.latency_ps, times);
    ap_text_add(out, ", bandwidth: ");
    add_quantity(out, c->inside.bytes_per_second, bandwidths);
    ap_text_add(out, "}\n");
}
