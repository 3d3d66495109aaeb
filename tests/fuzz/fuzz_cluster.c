/* Cluster files: YAML, read and checked. */
#include "fuzz.h"

#include "passes/cluster.h"

static void check_links(const ap_cluster *c)
{
    fuzz_check(c->inside.bytes_per_second > 0 && c->across.bytes_per_second > 0 && c->between.bytes_per_second > 0,
               "a link that carries nothing");
    fuzz_check(c->inside.latency_ps >= 0 && c->across.latency_ps >= 0 && c->between.latency_ps >= 0,
               "a link back in time");
}

/* Every rank has its place, and a collective over all of them its price. */
static void check_places(const ap_cluster *c)
{
    int32_t devices = ap_cluster_devices(c), last = devices - 1, sum = 0;
    for (int32_t g = 0; g < c->ngroups; g++) {
        check_links(&c->group[g]);
        fuzz_check(c->group[g].memory_bytes >= c->memory_bytes, "a device with less than the least");
        sum += ap_cluster_devices(&c->group[g]);
    }
    fuzz_check(devices > 0 && devices <= AP_CLUSTER_MAX_DEVICES && (c->ngroups == 0 || sum == devices), "devices");
    fuzz_check(ap_cluster_group(c, 0) == 0 && (c->ngroups == 0 || ap_cluster_group(c, last) == c->ngroups - 1),
               "groups");
    fuzz_check(ap_cluster_host(c, 0) == 0 && ap_cluster_island(c, last) <= last, "places");
    ap_mesh_info mesh = {.naxes = 1, .axis_size = {devices}};
    ap_span span;
    ap_cluster_span(c, &mesh, 0, &span);
    for (int k = 0; k < AP_COLLECTIVE_COUNT; k++)
        fuzz_check(ap_cost_span(c, &span, (ap_collective)k, INT64_C(1) << 40) >= 0, "a negative price");
}

static ap_status body(ap_ctx *ctx, const uint8_t *data, size_t size)
{
    ap_cluster c;
    AP_TRY(ap_cluster_from_text(ctx, "cluster.yaml", (const char *)data, size, &c));
    fuzz_check(c.name && c.hosts > 0 && c.devices_per_host > 0, "a cluster without devices");
    fuzz_check(c.memory_bytes > 0 && c.memory_bytes_per_second > 0 && c.vector_flops_per_second > 0, "a rate of zero");
    fuzz_check(c.contract_efficiency > 0 && c.contract_efficiency <= 1, "a strange efficiency");
    for (int32_t i = 0; i < c.ncaches; i++)
        fuzz_check(c.cache[i].bytes_per_second > 0 && c.cache[i].bytes > (i ? c.cache[i - 1].bytes : 0), "caches");
    ap_work work = {AP_PRODUCT_MATRIX, AP_F32, 1 << 30, 1 << 20, 100, 100, 3, 5, 1 << 20, 1 << 20, 30, 9, 7};
    for (work.kind = AP_PRODUCT_NONE; work.kind < AP_PRODUCT_KINDS; work.kind++)
        fuzz_check(ap_cluster_kernel_ps(&c, ap_cluster_work_ps(&c, &work), ap_cluster_touch_ps(&c, 1 << 30, 1 << 20)) >
                       0,
                   "work for nothing");
    check_links(&c);
    check_places(&c);
    return AP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(body, data, size);
}
