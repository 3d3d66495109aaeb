/* Cluster files: YAML, read and checked. */
#include "fuzz.h"

#include "passes/cluster.h"

static ap_status body(ap_ctx *ctx, const uint8_t *data, size_t size)
{
    ap_cluster c;
    AP_TRY(ap_cluster_from_text(ctx, "cluster.yaml", (const char *)data, size, &c));
    fuzz_check(c.name && c.hosts > 0 && c.devices_per_host > 0, "a cluster without devices");
    fuzz_check(c.memory_bytes > 0 && c.memory_bytes_per_second > 0 && c.vector_flops_per_second > 0, "a rate of zero");
    fuzz_check(c.contract_efficiency > 0 && c.contract_efficiency <= 1, "a strange efficiency");
    fuzz_check(c.inside.bytes_per_second > 0 && c.between.bytes_per_second > 0, "a link that carries nothing");
    return AP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(body, data, size);
}
