/* What the kernels of a local program move on a GPU: prints a line for each call of a kernel that is no library's,
 *
 *     kernel   bytes that it touches   bytes of the sectors needed   bytes of the sectors touched
 *
 * by running them under the shim of the tests with a log of all accesses (cuda_traffic_log.cpp). The second over the
 * third is the share of the bandwidth that the access pattern allows. Inputs are small numbers, parameters zero.
 *
 *     cuda_traffic PROGRAM.ap [SOURCE_FOLDER] */
#include "tests/backend/cuda_run.h"

#include "ir/eval.h"

#include <dlfcn.h>
#include <stdint.h>

typedef int run_fn(void *instance, const void *const inputs[], void *const outputs[]);

static int fail(ap_ctx *ctx, const char *what)
{
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        fprintf(stderr, "%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
    fprintf(stderr, "cuda_traffic: %s\n", what);
    return 1;
}

static void *fresh(const ap_port *port, uint32_t *seed)
{
    int64_t bytes = cuda_port_bytes(port), size = ap_dtype_bytes(port->dtype);
    char *p = calloc(1, (size_t)bytes + 8);
    for (int64_t i = 0; i < bytes; i += size) {
        ap_scalar x;
        *seed = *seed * 1664525u + 1013904223u;
        if (ap_dtype_is_float(port->dtype))
            x.f = (double)(*seed >> 16) / 65536;
        else
            x.i = port->dtype == AP_BOOL ? 1 : *seed >> 29;
        ap_scalar_store(port->dtype, p + i, x);
    }
    return p;
}

int main(int argc, char **argv)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_file f;
    ap_program *g;
    char dir[] = "/tmp/ap-traffic-XXXXXX", path[64];
    const ap_target target[1] = {AP_TARGET_CUDA};
    ap_backend_options opt = {.dir = dir, .name = "t", .header = "", .target = target};
    if (argc < 2 || ap_file_map(ctx, argv[1], &f) != AP_OK ||
        ap_program_parse(ctx, argv[1], (const char *)f.data, f.size, &g) != AP_OK)
        return fail(ctx, "usage: cuda_traffic PROGRAM.ap [SOURCE_FOLDER]");
    if (!mkdtemp(dir) || cuda_build(ctx, g, &opt, argc > 2 ? argv[2] : ".", AP_SHIM_LIBRARY " " AP_TRAFFIC_LOG,
                                    "-fsanitize=thread -fno-tree-sra -DTRAFFIC", ""))
        return fail(ctx, "cannot build");
    snprintf(path, sizeof path, "%s/test.so", dir);
    void *library = dlopen(path, RTLD_NOW);
    run_fn *run;
    if (!library)
        return fail(ctx, dlerror());
    *(void **)&run = dlsym(library, "t_run");
    const ap_local *p = g->stages.at[0];
    uint32_t seed = 5;
    const void **in = calloc(p->inputs.len + 1, sizeof *in);
    void **out = calloc(p->outputs.len + 1, sizeof *out);
    for (uint32_t i = 0; i < p->inputs.len; i++)
        in[i] = fresh(&p->inputs.at[i], &seed);
    for (uint32_t i = 0; i < p->outputs.len; i++)
        out[i] = fresh(&p->outputs.at[i], &seed);
    int status = run(NULL, in, out);
    ap_dir_remove(ctx, dir);
    ap_ctx_release(ctx);
    return status;
}
