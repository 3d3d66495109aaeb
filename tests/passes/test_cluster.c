/* Clusters: files read to the last number, wrong ones refused with file, line and key, presets with a part picked. */
#include "passes/cluster.h"

#include "ir/base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD "name: lab\ngroups:\n  - hosts: 2\n    devices_per_host: 4\n    device:\n"
#define PEAK "      peak: {f32: 19.5 TFLOP/s, bf16: 312 TFLOP/s}\n"
#define REST "      vector: 9.7 TFLOP/s\n      efficiency: 0.625\n      launch: 4 us\n      memory:\n"
#define HBM "        - {name: HBM, capacity: 80 GB, bandwidth: 2.039 TB/s}\n"
#define DRAM "        - {name: DRAM, capacity: 2 TiB, bandwidth: 25 GB/s, latency: 1500 ns, shared_by: 8}\n"
#define LINKS                                                                                                          \
    "links:\n  devices: {latency: 5 us, bandwidth: 300 GB/s}\n  hosts: {latency: 10us, bandwidth: 200 Gbit/s}\n"
#define WHOLE HEAD PEAK REST HBM DRAM LINKS
#define FINER(line) "      " line "\n" REST HBM

static void whole_file(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    assert_int_equal(ap_cluster_from_text(ctx, "lab.yaml", WHOLE, strlen(WHOLE), &c), AP_OK);
    assert_string_equal(c.name, "lab");
    assert_int_equal(c.hosts, 2);
    assert_int_equal(c.devices_per_host, 4);
    assert_int_equal(c.flops_per_second[AP_F32], INT64_C(19500000000000));
    assert_int_equal(c.flops_per_second[AP_BF16], INT64_C(312000000000000));
    assert_int_equal(c.flops_per_second[AP_F16], 0);
    assert_int_equal(c.vector_flops_per_second, INT64_C(9700000000000));
    assert_true(c.contract_efficiency == 0.625);
    assert_int_equal(c.launch_ps, 4000000);
    assert_false(c.transfers_wait);
    assert_int_equal(c.memory_bytes, INT64_C(80000000000));
    assert_int_equal(c.memory_bytes_per_second, INT64_C(2039000000000));
    assert_int_equal(c.ntiers, 2);
    assert_int_equal(c.tier[0].bytes, c.memory_bytes);
    assert_string_equal(c.tier[1].name, "DRAM");
    assert_int_equal(c.tier[1].bytes, INT64_C(2) << 40);
    assert_int_equal(c.tier[1].latency_ps, 1500000);
    assert_int_equal(c.tier[1].shared_by, 8);
    assert_int_equal(c.inside.latency_ps, 5000000);
    assert_int_equal(c.inside.bytes_per_second, INT64_C(300000000000));
    assert_int_equal(c.between.latency_ps, 10000000);
    assert_int_equal(c.between.bytes_per_second, INT64_C(25000000000));
    assert_int_equal(c.cost, AP_COST_TIME);
    static const char alpa[] = "cost: alpa\n" WHOLE, time[] = "cost: time\n" WHOLE;
    assert_int_equal(ap_cluster_from_text(ctx, "lab.yaml", time, sizeof time - 1, &c), AP_OK);
    assert_int_equal(c.cost, AP_COST_TIME);
    assert_int_equal(ap_cluster_from_text(ctx, "lab.yaml", alpa, sizeof alpa - 1, &c), AP_OK);
    assert_int_equal(c.cost, AP_COST_ALPA);
    assert_int_equal(c.launch_ps, 0); /* computing is free */
    ap_ctx_release(ctx);
}

/* Figures that may be left out; older files say a cache and convolutions in one. */
static void finer_figures(void **unused)
{
    (void)unused;
    static const char finer[] = HEAD PEAK FINER(
        "functions: 2 GFLOP/s\n      lanes: 8\n      products: {columns: 16, depth: 8, call: 60 ns}\n"
        "      convolutions: {spatial: 0.5, pointwise: 0.75, depthwise: 0.25, call: 1 us, steps: 4 G/s}\n"
        "      cache: [{capacity: 1 MB, bandwidth: 9 GB/s}, {capacity: 8 MB, bandwidth: 5 GB/s}]") LINKS,
                      older[] =
                          HEAD PEAK FINER("convolutions: 0.5\n      cache: {capacity: 1 MB, bandwidth: 9 GB/s}") LINKS;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    assert_int_equal(ap_cluster_from_text(ctx, "lab.yaml", finer, sizeof finer - 1, &c), AP_OK);
    assert_int_equal(c.function_flops_per_second, 2000000000);
    assert_int_equal(c.lanes, 8);
    assert_int_equal(c.tile_columns, 16);
    assert_int_equal(c.tile_depth, 8);
    assert_int_equal(c.product_call_ps, 60000);
    assert_true(c.conv_efficiency[AP_PRODUCT_SPATIAL] == 0.5 && c.conv_efficiency[AP_PRODUCT_POINTWISE] == 0.75 &&
                c.conv_efficiency[AP_PRODUCT_DEPTHWISE] == 0.25);
    assert_int_equal(c.conv_call_ps, 1000000);
    assert_int_equal(c.conv_step_elements_per_second, INT64_C(4000000000));
    assert_int_equal(c.ncaches, 2);
    assert_int_equal(c.cache[1].bytes, 8000000);
    assert_int_equal(c.cache[1].bytes_per_second, INT64_C(5000000000));
    assert_int_equal(ap_cluster_from_text(ctx, "lab.yaml", older, sizeof older - 1, &c), AP_OK);
    for (int k = AP_PRODUCT_SPATIAL; k < AP_PRODUCT_KINDS; k++)
        assert_true(c.conv_efficiency[k] == 0.5);
    assert_int_equal(c.ncaches, 1);
    assert_int_equal(c.cache[0].bytes, 1000000);
    ap_ctx_release(ctx);
}

/* Two hosts of four fast devices on two sockets, three of two slow ones that have links of their own. */
#define MIXED                                                                                                          \
    "name: mixed\ngroups:\n"                                                                                           \
    "  - hosts: 2\n    devices_per_host: 4\n    devices_per_socket: 2\n    device:\n" PEAK REST HBM                    \
    "  - hosts: 3\n    devices_per_host: 2\n    device:\n"                                                             \
    "      peak: {f32: 15.7 TFLOP/s, f16: 125 TFLOP/s}\n"                                                              \
    "      vector: 12 TFLOP/s\n      efficiency: 0.75\n      launch: 5 us\n      memory:\n"                            \
    "        - {name: HBM, capacity: 16 GB, bandwidth: 900 GB/s}\n" DRAM                                               \
    "    links: {devices: {latency: 6 us, bandwidth: 130 GB/s}, hosts: {latency: 15 us, shared: 25 Gbit/s}}\n"         \
    "links:\n  devices: {latency: 5 us, bandwidth: 300 GB/s}\n"                                                        \
    "  sockets: {latency: 7 us, bandwidth: 40 GB/s, shared: 32 GB/s}\n  hosts: {latency: 10 us, bandwidth: 25 GB/s}\n"

static void unlike_hosts(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    assert_int_equal(ap_cluster_from_text(ctx, "mixed.yaml", MIXED, strlen(MIXED), &c), AP_OK);
    assert_int_equal(c.ngroups, 2);
    assert_int_equal(ap_cluster_devices(&c), 14);
    assert_int_equal(c.devices_per_host, 2); /* the greatest common divisor */
    assert_int_equal(c.group[0].island, 2);
    assert_int_equal(c.group[0].across.bytes_per_second, INT64_C(40000000000));
    assert_int_equal(c.group[0].across.shared_bytes_per_second, INT64_C(32000000000));
    assert_int_equal(c.group[0].between.bytes_per_second, INT64_C(25000000000));
    assert_int_equal(c.group[1].island, 0);
    assert_int_equal(c.group[1].inside.latency_ps, 6000000);
    assert_int_equal(c.group[1].between.bytes_per_second, 3125000000);
    assert_int_equal(c.group[1].between.shared_bytes_per_second, 3125000000);
    assert_int_equal(c.group[1].tier[1].shared_by, 8);
    /* The slowest of each: bf16 of the second group is computed as f32 there, f16 of the first likewise. */
    assert_int_equal(c.flops_per_second[AP_F32], INT64_C(15700000000000));
    assert_int_equal(c.flops_per_second[AP_BF16], INT64_C(15700000000000));
    assert_int_equal(c.flops_per_second[AP_F16], INT64_C(19500000000000));
    assert_int_equal(c.vector_flops_per_second, INT64_C(9700000000000));
    assert_true(c.contract_efficiency == 0.625);
    assert_int_equal(c.memory_bytes, INT64_C(16000000000));
    assert_int_equal(c.memory_bytes_per_second, INT64_C(900000000000));
    assert_int_equal(c.launch_ps, 5000000);
    assert_int_equal(c.inside.bytes_per_second, INT64_C(130000000000));
    assert_int_equal(c.between.latency_ps, 15000000);
    assert_int_equal(c.between.shared_bytes_per_second, 3125000000);
    assert_int_equal(c.ntiers, 1);
    ap_ctx_release(ctx);
}

static void places(void **unused)
{
    (void)unused;
    static const int32_t host[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4};
    static const int32_t place[] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0, 1, 0, 1};
    static const int32_t island[] = {0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12};
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    assert_int_equal(ap_cluster_from_text(ctx, "mixed.yaml", MIXED, strlen(MIXED), &c), AP_OK);
    for (int32_t r = 0; r < 14; r++) {
        assert_int_equal(ap_cluster_group(&c, r), r >= 8);
        assert_int_equal(ap_cluster_host(&c, r), host[r]);
        assert_int_equal(ap_cluster_host_device(&c, r), place[r]);
        assert_int_equal(ap_cluster_island(&c, r), island[r]);
        assert_ptr_equal(ap_cluster_at(&c, r), &c.group[r >= 8]);
    }
    assert_int_equal(ap_cluster_level(&c, 0, 1).bytes_per_second, INT64_C(300000000000));
    assert_int_equal(ap_cluster_level(&c, 1, 2).bytes_per_second, INT64_C(40000000000));
    assert_int_equal(ap_cluster_level(&c, 3, 4).bytes_per_second, INT64_C(25000000000));
    assert_int_equal(ap_cluster_level(&c, 7, 8).bytes_per_second, 3125000000);
    assert_int_equal(ap_cluster_level(&c, 7, 8).latency_ps, 15000000);
    assert_int_equal(ap_cluster_level(&c, 8, 9).bytes_per_second, INT64_C(130000000000));
    ap_ctx_release(ctx);
}

static void parts(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c, part;
    assert_int_equal(ap_cluster_from_text(ctx, "mixed.yaml", MIXED, strlen(MIXED), &c), AP_OK);
    ap_cluster_part(&c, 4, 4, &part);
    assert_int_equal(part.flops_per_second[AP_BF16], INT64_C(312000000000000));
    assert_int_equal(part.memory_bytes, INT64_C(80000000000));
    assert_int_equal(part.inside.bytes_per_second, INT64_C(300000000000));
    assert_int_equal(ap_cluster_host(&part, 4), 1); /* ranks stay */
    assert_int_equal(ap_cluster_devices(&part), 14);
    ap_cluster_part(&c, 10, 4, &part);
    assert_int_equal(part.flops_per_second[AP_F16], INT64_C(125000000000000));
    assert_int_equal(part.flops_per_second[AP_BF16], 0);
    assert_int_equal(part.launch_ps, 5000000);
    assert_int_equal(part.ntiers, 2);
    ap_cluster_part(&c, 7, 2, &part);
    assert_int_equal(part.memory_bytes, c.memory_bytes);
    assert_int_equal(part.between.bytes_per_second, c.between.bytes_per_second);
    assert_true(ap_cluster_part_equal(&c, 0, 4, 4) && ap_cluster_part_equal(&c, 8, 10, 4));
    assert_true(ap_cluster_part_equal(&c, 0, 2, 2) && ap_cluster_part_equal(&c, 1, 5, 3));
    assert_false(ap_cluster_part_equal(&c, 0, 8, 2)); /* other devices */
    assert_false(ap_cluster_part_equal(&c, 0, 1, 2)); /* one over sockets */
    assert_false(ap_cluster_part_equal(&c, 0, 2, 4)); /* one over hosts */
    ap_cluster_from_preset(ctx, "dgx-2:2", &c);
    ap_cluster_part(&c, 8, 8, &part);
    assert_int_equal(part.hosts, 2);
    assert_true(ap_cluster_part_equal(&c, 0, 8, 8) && !ap_cluster_part_equal(&c, 4, 12, 8));
    ap_ctx_release(ctx);
}

typedef struct refusal {
    const char *text, *words; /* words: must stand in the message, in this order, separated by | */
} refusal;

static const refusal refusals[] = {
    {"", "bad.yaml|empty"},
    {"# only a comment\n", "bad.yaml|empty"},
    {"just words\n", "bad.yaml:1|mapping"},
    {"- a\n- b\n", "bad.yaml:1|mapping"},
    {"name: [a\n", "bad.yaml:|not YAML"},
    {"name: \"\\0\"\n", "bad.yaml:1|\"name\""},
    {WHOLE "---\nname: more\n", "bad.yaml|several documents"},
    {"name: lab\n", "bad.yaml:1|\"groups\"|missing"},
    {WHOLE "extra: 1\n", "bad.yaml:16|\"extra\"|known"},
    {WHOLE "name: again\n", "bad.yaml:16|\"name\"|twice"},
    {"name: lab\ncost: dear\n", "bad.yaml:2|\"cost\"|neither time nor alpa"},
    {"name: lab\ncost: [alpa]\n", "bad.yaml:2|\"cost\""},
    {"name: lab\ngroups: []\n", "bad.yaml:2|\"groups\""},
    {"name: lab\ngroups: [{}, {}]\n", "bad.yaml:2|\"groups[0].hosts\"|missing"},
    {HEAD PEAK REST HBM "  - hosts: 1\n" LINKS, "bad.yaml:12|\"groups[1].devices_per_host\"|missing"},
    {HEAD PEAK REST HBM "  - 7\n" LINKS, "bad.yaml:12|\"groups[1]\"|mapping"},
    {"name: lab\ngroups: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\n",
     "bad.yaml:2|\"groups\"|more than 64"},
    {HEAD PEAK REST HBM, "bad.yaml:1|\"links\"|missing"},
    {"name: lab\ngroups:\n  - hosts: 2\n    devices_per_host: 4\n    devices_per_socket: 3\n" LINKS,
     "bad.yaml:5|\"groups[0].devices_per_socket\"|does not divide"},
    {"name: lab\ngroups:\n  - hosts: 2\n    devices_per_host: 4\n    devices_per_socket: 2\n    device:\n" PEAK REST HBM
         LINKS,
     "bad.yaml:14|\"links.sockets\"|missing"},
    {HEAD PEAK REST HBM "    links: {hosts: {latency: 1 us, bandwidth: 1 GB/s}}\n",
     "bad.yaml:12|\"groups[0].links.devices\"|missing"},
    {HEAD PEAK REST HBM "    links: {hosts: {latency: 1 us}}\n" LINKS,
     "bad.yaml:12|\"groups[0].links.hosts.bandwidth\"|missing"},
    {HEAD PEAK REST HBM "links: {devices: {latency: 1 us, bandwidth: 1 GB/s, shared: 1 GB/s}}\n",
     "bad.yaml:12|\"links.devices.shared\"|known"},
    {HEAD PEAK REST HBM
     "links: {devices: {latency: 1 us, bandwidth: 1 GB/s}, hosts: {latency: 1 us, shared: 0 GB/s}}\n",
     "bad.yaml:12|\"links.hosts.shared\"|'0 GB/s'"},
    {HEAD PEAK REST HBM "  - hosts: 65535\n    devices_per_host: 1\n    device:\n" PEAK REST HBM LINKS,
     "bad.yaml:3|\"groups\"|65536"},
    {"name: lab\ngroups: [7]\n", "bad.yaml:2|\"groups[0]\"|mapping"},
    {"name: lab\ngroups:\n  - hosts: 0\n", "bad.yaml:3|\"groups[0].hosts\"|1 to 65536"},
    {"name: lab\ngroups:\n  - hosts: 1.5\n", "bad.yaml:3|\"groups[0].hosts\""},
    {"name: lab\ngroups:\n  - hosts: 99999999999999999999\n", "bad.yaml:3|\"groups[0].hosts\""},
    {"name: lab\ngroups:\n  - hosts: 60000\n    devices_per_host: 60000\n", "bad.yaml:3|65536"},
    {HEAD "      peak: 3\n", "bad.yaml:6|\"groups[0].device.peak\"|mapping"},
    {HEAD "      peak: {bf16: 312 TFLOP/s}\n", "bad.yaml:6|\"groups[0].device.peak.f32\"|missing"},
    {HEAD "      peak: {f32: 312}\n", "bad.yaml:6|\"groups[0].device.peak.f32\"|'312'|TFLOP/s"},
    {HEAD "      peak: {f32: 312 GB}\n", "bad.yaml:6|peak.f32|'312 GB'"},
    {HEAD "      peak: {f32: -1 TFLOP/s}\n", "bad.yaml:6|peak.f32"},
    {HEAD "      peak: {f32: 0 TFLOP/s}\n", "bad.yaml:6|peak.f32"},
    {HEAD "      peak: {f32: 9223372036854775807 PFLOP/s}\n", "bad.yaml:6|peak.f32"},
    {HEAD "      peak: {f32: 99999999999999999999999 TFLOP/s}\n", "bad.yaml:6|peak.f32"},
    {HEAD "      peak: {f32: [1]}\n", "bad.yaml:6|peak.f32|single"},
    {HEAD "      peak: {f32: 1 TFLOP/s, f77: 1 TFLOP/s}\n", "bad.yaml:6|peak.f77|known"},
    {HEAD PEAK "      vector: 1 TFLOP/s\n      efficiency: 1.1\n", "bad.yaml:8|\"groups[0].device.efficiency\""},
    {HEAD PEAK "      vector: 1 TFLOP/s\n      efficiency: 0\n", "bad.yaml:8|efficiency"},
    {HEAD PEAK "      vector: 1 TFLOP/s\n      efficiency: most\n", "bad.yaml:8|efficiency"},
    {HEAD PEAK REST "        []\n" LINKS, "bad.yaml:11|\"groups[0].device.memory\""},
    {HEAD PEAK REST "        - {name: HBM, bandwidth: 1 GB/s}\n" LINKS,
     "bad.yaml:11|device.memory[0].capacity|missing"},
    {HEAD PEAK REST HBM "        - {name: D, capacity: 1 GB/s, bandwidth: 1 GB/s}\n" LINKS,
     "bad.yaml:12|memory[1].capacity|'1 GB/s'"},
    {HEAD PEAK REST DRAM LINKS, "bad.yaml:11|\"groups[0].device.memory\"|share"},
    {HEAD PEAK REST HBM HBM HBM HBM HBM HBM HBM HBM HBM LINKS, "bad.yaml:11|memory|more than 8"},
    {HEAD PEAK REST HBM "links: {}\n", "bad.yaml:12|\"links.devices\"|missing"},
    {HEAD PEAK REST HBM "links: {devices: {latency: 1 us, bandwidth: 1 GB/s}}\n",
     "bad.yaml:12|\"links.hosts\"|missing"},
    {HEAD PEAK REST HBM
     "links: {hosts: {latency: 1 us, bandwidth: 1 GB/s}, devices: {latency: 1 GB, bandwidth: 1 GB/s}}\n",
     "bad.yaml:12|links.devices.latency"},
    {HEAD PEAK REST HBM
     "links: {hosts: {latency: 1 us, bandwidth: 1 GB/s}, devices: {latency: 1 us, bandwidth: 0.5 B/s}}\n",
     "bad.yaml:12|links.devices.bandwidth"},
    {HEAD PEAK FINER("functions: 0 FLOP/s") LINKS, "bad.yaml:7|\"groups[0].device.functions\"|'0 FLOP/s'"},
    {HEAD PEAK FINER("lanes: 5000") LINKS, "bad.yaml:7|device.lanes|1 to 4096"},
    {HEAD PEAK FINER("products: 3") LINKS, "bad.yaml:7|\"groups[0].device.products\"|mapping"},
    {HEAD PEAK FINER("products: {columns: 0}") LINKS, "bad.yaml:7|products.columns|1 to 4096"},
    {HEAD PEAK FINER("products: {rows: 6}") LINKS, "bad.yaml:7|products.rows|known"},
    {HEAD PEAK FINER("convolutions: 2") LINKS, "bad.yaml:7|device.convolutions|above 0"},
    {HEAD PEAK FINER("convolutions: {spatial: 0.5, depthwise: 0.5}") LINKS,
     "bad.yaml:7|convolutions.pointwise|missing"},
    {HEAD PEAK FINER("convolutions: {spatial: 0.5, depthwise: 0.5, pointwise: 1, steps: 4 GB}") LINKS,
     "bad.yaml:7|convolutions.steps|'4 GB'"},
    {HEAD PEAK FINER("cache: []") LINKS, "bad.yaml:7|\"groups[0].device.cache\"|no cache, or more than 4"},
    {HEAD PEAK FINER("cache: [{capacity: 1 MB, bandwidth: 1 GB/s}, {capacity: 1 MB, bandwidth: 1 GB/s}]") LINKS,
     "bad.yaml:7|\"groups[0].device.cache[1]\"|larger"},
};

static void wrong_files(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_cluster c;
        const char *text = refusals[i].text;
        if (ap_cluster_from_text(ctx, "bad.yaml", text, strlen(text), &c) != AP_ERR_USAGE || ctx->diags.len != 1)
            fail_msg("refusal %zu: not refused once", i);
        const char *message = ap_diag_str(ctx, &ctx->diags.at[0]), *at = message;
        char words[256];
        strncpy(words, refusals[i].words, sizeof words - 1);
        words[sizeof words - 1] = 0;
        for (char *w = strtok(words, "|"); w; w = strtok(NULL, "|")) {
            at = strstr(at, w);
            if (!at)
                fail_msg("refusal %zu: '%s' is not (there) in: %s", i, w, message);
        }
        ap_ctx_release(ctx);
    }
}

/* Every prefix and every file with one byte changed is read or refused once; what is read makes sense. */
static void damaged_files(void **unused)
{
    (void)unused;
    char text[sizeof WHOLE];
    size_t n = strlen(WHOLE);
    for (size_t i = 0; i < 3 * n; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_cluster c;
        memcpy(text, WHOLE, n);
        size_t size = i < n ? i : n;
        if (i >= n)
            text[i % n] = i < 2 * n ? '&' : (char)0xff;
        ap_status s = ap_cluster_from_text(ctx, "bad.yaml", text, size, &c);
        assert_true(s == AP_OK || (s == AP_ERR_USAGE && ctx->diags.len == 1));
        if (s == AP_OK)
            assert_true(c.hosts > 0 && c.devices_per_host > 0 && c.flops_per_second[AP_F32] > 0 && c.memory_bytes > 0 &&
                        c.inside.bytes_per_second > 0 && c.between.bytes_per_second > 0);
        ap_ctx_release(ctx);
    }
}

static void deep_nesting(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_cluster c;
    ap_text_init(&t, &ctx->arena);
    for (int i = 0; i < 20000; i++)
        ap_text_add(&t, "[");
    assert_int_equal(ap_cluster_from_text(ctx, "bad.yaml", ap_text_str(&t), t.len, &c), AP_ERR_USAGE);
    ap_ctx_release(ctx);
}

static void presets(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        int32_t devices;
        int64_t gigabytes, f16_tera, inside_giga;
    } known[] = {{"p3.16xlarge", 8, 16, 125, 130},   {"dgx-2", 16, 32, 125, 150}, {"summit", 6, 16, 125, 50},
                 {"dgx-a100-80gb", 8, 80, 312, 300}, {"selene", 8, 80, 312, 300}, {"dgx-h100", 8, 80, 989, 450},
                 {"dgx-h200", 8, 141, 989, 450}};
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *text = ap_name_str(ctx, ap_name_format(ctx, "%s:3", known[i].name));
        assert_int_equal(ap_cluster_find(ctx, text, &c), AP_OK);
        assert_string_equal(c.name, known[i].name);
        assert_int_equal(c.hosts, 3);
        assert_int_equal(c.devices_per_host, known[i].devices);
        assert_int_equal(c.memory_bytes, known[i].gigabytes * INT64_C(1000000000));
        assert_int_equal(c.flops_per_second[AP_F16], known[i].f16_tera * INT64_C(1000000000000));
        assert_int_equal(c.inside.bytes_per_second, known[i].inside_giga * INT64_C(1000000000));
        assert_true(c.between.bytes_per_second < c.inside.bytes_per_second);
    }
    assert_int_equal(ap_cluster_find(ctx, "summit:4608", &c), AP_OK);
    assert_int_equal(ap_cluster_find(ctx, "dgx-2:65536x16", &c), AP_ERR_USAGE);
    assert_int_equal(ap_cluster_find(ctx, "none.yaml", &c), AP_ERR_ENV);
    assert_int_equal(ap_cluster_find(ctx, "./none:2x2", &c), AP_ERR_ENV);
    assert_int_equal(ap_cluster_find(ctx, "none.yaml:2x", &c), AP_ERR_USAGE);
    ap_ctx_release(ctx);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void part_of_mixed_file(void **unused)
{
    (void)unused;
    char path[] = "/tmp/autopar-mixed-XXXXXX.yaml", text[64];
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    write_file(path, MIXED);
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    snprintf(text, sizeof text, "%s:2", path);
    assert_int_equal(ap_cluster_find(ctx, text, &c), AP_OK);
    assert_int_equal(c.ngroups, 0);
    assert_int_equal(c.hosts, 2);
    assert_int_equal(c.memory_bytes, INT64_C(80000000000));
    snprintf(text, sizeof text, "%s:3x2", path);
    assert_int_equal(ap_cluster_find(ctx, text, &c), AP_OK);
    assert_int_equal(c.ngroups, 2);
    assert_int_equal(c.group[1].hosts, 1);
    assert_int_equal(ap_cluster_devices(&c), 6);
    static const char *const bad[] = {":6", ":5x3", ":0", ":1x"};
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "%s%s", path, bad[i]);
        assert_int_equal(ap_cluster_find(ctx, text, &c), AP_ERR_USAGE);
    }
    ap_ctx_release(ctx);
    remove(path);
}

/* Who moves what a stage receives: something beside the devices, or they themselves. */
static void transfers(void **unused)
{
    (void)unused;
    static const char *const text[] = {HEAD PEAK "      transfers: overlap\n" REST HBM LINKS,
                                       HEAD PEAK "      transfers: wait\n" REST HBM LINKS,
                                       HEAD PEAK "      transfers: never\n" REST HBM LINKS};
    for (int i = 0; i < 3; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_cluster c;
        ap_status s = ap_cluster_from_text(ctx, "lab.yaml", text[i], strlen(text[i]), &c);
        assert_int_equal(s, i < 2 ? AP_OK : AP_ERR_USAGE);
        if (i < 2)
            assert_int_equal(c.transfers_wait, i == 1);
        else
            assert_non_null(strstr(ctx->diags.at[0].text, "is neither overlap nor wait"));
        ap_ctx_release(ctx);
    }
    ap_cluster local;
    ap_cluster_local(2, &local);
    assert_true(local.transfers_wait);
}

/* What devices are, said or taken from how they move; groups of both are kept apart. */
static void kinds(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        int cpu; /* -1: wrong */
    } cases[] = {
        {HEAD PEAK REST HBM LINKS, 0},
        {HEAD PEAK "      transfers: wait\n" REST HBM LINKS, 1},
        {HEAD PEAK "      kind: cpu\n" REST HBM LINKS, 1},
        {HEAD PEAK "      kind: gpu\n      transfers: wait\n" REST HBM LINKS, 0},
        {HEAD PEAK "      kind: tpu\n" REST HBM LINKS, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_cluster c;
        ap_status s = ap_cluster_from_text(ctx, "lab.yaml", cases[i].text, strlen(cases[i].text), &c);
        assert_int_equal(s, cases[i].cpu >= 0 ? AP_OK : AP_ERR_USAGE);
        if (cases[i].cpu >= 0)
            assert_int_equal(c.cpu, cases[i].cpu);
        else
            assert_non_null(strstr(ctx->diags.at[0].text, "is neither cpu nor gpu"));
        ap_ctx_release(ctx);
    }
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster both[2], joined;
    ap_cluster_local(2, &both[0]);
    assert_int_equal(ap_cluster_from_preset(ctx, "dgx-h100:1x4", &both[1]), AP_OK);
    ap_cluster_join(ctx, "both", both, 2, &joined);
    for (int32_t r = 0; r < 6; r++)
        assert_int_equal(ap_cluster_at(&joined, r)->cpu, r < 2);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),         cmocka_unit_test(whole_file),         cmocka_unit_test(finer_figures),
        cmocka_unit_test(transfers),     cmocka_unit_test(unlike_hosts),       cmocka_unit_test(places),
        cmocka_unit_test(parts),         cmocka_unit_test(part_of_mixed_file), cmocka_unit_test(wrong_files),
        cmocka_unit_test(damaged_files), cmocka_unit_test(deep_nesting),       cmocka_unit_test(presets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
