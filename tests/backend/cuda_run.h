/* Kernels of a local program as CUDA, under the shim of tests/cudashim: kernels.cu is emitted, a file that calls its
 * launchers in the order of the instructions is written beside it, and both are compiled by the host's compiler. What
 * comes out has the interface of a compiled model. Ranks come one after the other, so there are no exchanges; products
 * are plain loops here. The real runtime is under test elsewhere (tests/cudashim). */
#ifndef AP_TESTS_BACKEND_CUDA_RUN_H
#define AP_TESTS_BACKEND_CUDA_RUN_H

#include "backend/cuda/cuda.h"
#include "ir/base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char cuda_run_head[] =
    "#include <autopar_rt_device.h>\n#include \"kernels.h\"\n#include <stdio.h>\n#include <vector>\n"
    "static aprt_cuda_bad *bad;\nstatic unsigned char *scratch;\nstatic unsigned long long at;\n"
    "#ifdef TRAFFIC /* bench/cuda_traffic.c */\n"
    "extern \"C\" void traffic_begin(void);\nextern \"C\" void traffic_end(const char *kernel);\n"
    "extern \"C\" void traffic_range(const char *p, int64_t n);\n#define TRAFFIC_RANGE(p, n) traffic_range(p, n);\n"
    "#define TRAFFIC_BEGIN traffic_begin();\n"
    "#define TRAFFIC_END(kernel) cudaDeviceSynchronize(); if (*kernel) traffic_end(kernel);\n"
    "#else\n#define TRAFFIC_BEGIN\n#define TRAFFIC_END(kernel)\n#define TRAFFIC_RANGE(p, n)\n#endif\n"
    "static void take(char **p, int64_t n)\n{\n    cudaMalloc((void **)p, n);\n    TRAFFIC_RANGE(*p, n)\n}\n"
    "static char text[256];\nstatic char *arena, *param, *in[512], *out[512];\n"
    "void *aprt_cuda_scratch(aprt_device *) { return scratch; }\n"
    "int64_t aprt_cuda_grid(aprt_device *, int64_t blocks) { return blocks < 1 ? 1 : blocks > 5 ? 5 : blocks; }\n"
    "void aprt_cuda_launched(aprt_device *) {}\n"
    "aprt_cuda_bad *aprt_cuda_bad_of(aprt_device *) { return bad; }\n"
    "unsigned long long aprt_cuda_key(aprt_device *) { return at << 40; }\n"
    "cudaStream_t aprt_cuda_stream(aprt_device *) { return 0; }\n"
    "template <class T> static double get(const T *x, int64_t i) { return (double)x[i]; }\n"
    "static double element(int32_t t, const void *x, int64_t i)\n"
    "{\n    return t == APRT_F32 ? get((const float *)x, i) : t == APRT_F64 ? get((const double *)x, i)\n"
    "        : t == APRT_F16 ? aprt_f16_to_f32(((const uint16_t *)x)[i]) : aprt_bf16_to_f32(((const uint16_t *)x)[i]);"
    "\n}\nstatic void set(int32_t t, void *y, int64_t i, double x)\n{\n"
    "    if (t == APRT_F32) ((float *)y)[i] = (float)x;\n    else if (t == APRT_F64) ((double *)y)[i] = x;\n"
    "    else ((uint16_t *)y)[i] = t == APRT_F16 ? aprt_f32_to_f16((float)x) : aprt_f32_to_bf16((float)x);\n}\n"
    "struct turns { int64_t n[20], k; };\n"
    "static __global__ void product(aprt_cuda_product p, turns t, const void *a, const void *b, void *c,\n"
    "                               const void *bias)\n{\n    int64_t i[20] = {0};\n    const int L = p.nloops;\n"
    "    for (;;) {\n"
    "        int64_t pa = i[L] * p.rsa, pb = i[L + 1] * p.csb, pc = i[L] * p.rsc + i[L + 1];\n        bool add = "
    "false;\n"
    "        for (int l = 0; l < L; l++) {\n            pa += i[l] * p.stride_a[l], pb += i[l] * p.stride_b[l];\n"
    "            pc += i[l] * p.stride_c[l], add = add || (p.sum[l] && i[l] > 0);\n        }\n"
    "        double s = add ? element(p.dtype, c, pc) : 0;\n        for (int64_t j = 0; j < t.k; j++)\n"
    "            s += element(p.dtype, a, pa + j * p.csa) * element(p.dtype, b, pb + j * p.rsb);\n"
    "        bool gelu = p.after == APRT_CUDA_GELU_TANH || p.after == APRT_CUDA_BIAS_GELU_TANH;\n"
    "        bool biased = p.after == APRT_CUDA_BIAS || p.after == APRT_CUDA_BIAS_GELU_TANH;\n"
    "        if (biased) s += element(p.dtype, bias, i[L + 1]);\n"
    "        if (gelu) s = 0.5 * s * (1 + tanh(0.79788456080286536 * (s + 0.044715 * s * s * s)));\n"
    "        set(p.dtype, c, pc, s);\n        int l = L + 1;\n        while (l >= 0 && ++i[l] == t.n[l]) i[l--] = 0;\n"
    "        if (l < 0) return;\n    }\n}\n"
    "void aprt_cuda_gemm(aprt_device *, const aprt_cuda_product *p, const int64_t *turns_of, const void *a, const void "
    "*b,\n"
    "                    void *c, const void *bias)\n{\n    turns t;\n    const int L = p->nloops;\n"
    "    for (int l = 0; l < L; l++) t.n[l] = turns_of ? turns_of[l] : p->extent[l];\n"
    "    t.n[L] = turns_of ? turns_of[L] : p->m, t.n[L + 1] = turns_of ? turns_of[L + 1] : p->n;\n"
    "    t.k = turns_of ? turns_of[L + 2] : p->k;\n"
    "    for (int l = 0; l < L; l++) if (p->sum[l] && t.n[l] == 0) t.k = 0, t.n[l] = 1;\n"
    "    for (int l = 0; l < L; l++) if (p->sum[l] && t.k == 0) t.n[l] = 1;\n"
    "    for (int l = 0; l < L + 2; l++) if (t.n[l] == 0) return;\n"
    "    APRT_LAUNCH(product, 1, 1, 0, 0, *p, t, a, b, c, bias);\n}\n";

/* The elements of a port, the whole tensor. */
static inline int64_t cuda_port_bytes(const ap_port *port)
{
    int64_t n = ap_dtype_bytes(port->dtype);
    for (int d = 0; d < port->rank; d++)
        n *= port->dim[d];
    return n;
}

static inline void cuda_write_call(ap_text *t, const ap_emit *e, uint32_t i, const int32_t *coords)
{
    const ap_local *p = e->p;
    const ap_instr *in = &p->instrs.at[i];
    const ap_kernel *k = &p->kernels.at[in->kernel];
    static const char *const space[] = {"arena", "param", "in[", "out["};
    ap_text_addf(t, "    TRAFFIC_BEGIN\n    at = %u;\n    %s_k_%s(NULL", i, e->opt->name, ap_name_str(e->ctx, k->name));
    for (uint32_t r = 0; r < in->nrefs; r++) {
        const ap_ref *ref = &in->ref[r];
        ap_text_addf(t, ", (%s *)(%s", ap_dtype_c(k->operand[r].dtype), space[ref->space]);
        if (ref->space == AP_SPACE_ARENA)
            ap_text_addf(t, " + %" PRId64 ")", ref->byte_offset);
        else if (ref->space == AP_SPACE_PARAM)
            ap_text_addf(t, " + %" PRId64 ")", p->params.at[ref->index].byte_offset);
        else
            ap_text_addf(t, "%u])", ref->index);
        ap_text_addf(t, " + %" PRId64, ap_affine_at(&ref->offset, coords));
    }
    for (uint32_t r = 0; r < in->nints; r++)
        ap_text_addf(t, ", %" PRId64, ap_int_at(&in->ints[r], coords));
    ap_text_addf(t, ");\n    TRAFFIC_END(\"%s\")\n", k->kind == AP_KERNEL_GEMM ? "" : ap_name_str(e->ctx, k->name));
}

static inline bool cuda_runs(const ap_local *p, const ap_instr *in, const int32_t *coords)
{
    bool zero = true;
    for (int a = 0; a < p->naxes; a++)
        zero = zero && !(in->when_mask >> a & 1 && coords[a] != 0);
    return in->when == AP_WHEN_ALWAYS || (in->when == AP_WHEN_ZERO) == zero;
}

/* False when there is something in it that this file does not do. */
static inline bool cuda_can_run(const ap_local *p)
{
    for (uint32_t i = 0; i < p->instrs.len; i++)
        if (p->instrs.at[i].kind != AP_INSTR_CALL || p->kernels.at[p->instrs.at[i].kernel].kind == AP_KERNEL_CONV)
            return false;
    return p->params.len == 0 && p->inputs.len < 512 && p->outputs.len < 512;
}

static inline void cuda_write_ports(ap_text *t, const ap_local *p, bool copy_back)
{
    for (uint32_t i = 0; i < p->inputs.len && !copy_back; i++) {
        int64_t n = cuda_port_bytes(&p->inputs.at[i]);
        ap_text_addf(t,
                     "    take((char **)&in[%u], %" PRId64 ");\n    cudaMemcpy(in[%u], inputs[%u], %" PRId64
                     ", cudaMemcpyHostToDevice);\n",
                     i, n ? n : 1, i, i, n);
    }
    for (uint32_t i = 0; i < p->outputs.len; i++) {
        int64_t n = cuda_port_bytes(&p->outputs.at[i]);
        if (!copy_back)
            ap_text_addf(t, "    take((char **)&out[%u], %" PRId64 ");\n", i, n ? n : 1);
        ap_text_addf(t, "    cudaMemcpy(%s[%u], %s[%u], %" PRId64 ", %s);\n", copy_back ? "outputs" : "out", i,
                     copy_back ? "out" : "outputs", i, n,
                     copy_back ? "cudaMemcpyDeviceToHost" : "cudaMemcpyHostToDevice");
    }
    for (uint32_t i = 0; i < p->inputs.len && copy_back; i++)
        ap_text_addf(t, "    cudaFree(in[%u]);\n", i);
    for (uint32_t i = 0; i < p->outputs.len && copy_back; i++)
        ap_text_addf(t, "    cudaFree(out[%u]);\n", i);
}

/* run.cu: t_open, t_run, t_close, t_error. */
static inline ap_status cuda_write_run(ap_emit *e)
{
    const ap_local *p = e->program->stages.at[0];
    ap_text t;
    int64_t scratch = 1, arena = ap_max_i64(1, p->arena_bytes);
    for (uint32_t k = 0; k < e->nkernels; k++)
        scratch = ap_max_i64(scratch, ap_cuda_scratch_bytes(e, k));
    ap_text_init(&t, &e->ctx->scratch);
    ap_emit_turn(e, 0);
    ap_text_add(&t, cuda_run_head);
    int points = p->nranks * ap_local_microbatches(p);
    for (int point = 0; point < points; point++) {
        int32_t coords[AP_MAX_AXES] = {0};
        for (int a = 0; a < p->naxes; a++)
            coords[a] = point / p->axis_stride[a] % p->axis_size[a];
        ap_text_addf(&t, "static void rank%d(void)\n{\n", point);
        for (uint32_t i = 0; i < p->instrs.len; i++)
            if (cuda_runs(p, &p->instrs.at[i], coords))
                cuda_write_call(&t, e, i, coords);
        ap_text_add(&t, "}\n");
    }
    ap_text_addf(
        &t,
        "extern \"C\" int t_open(const void *, void **instance) { *instance = NULL; return 0; }\n"
        "extern \"C\" void t_close(void *) {}\nextern \"C\" const char *t_error(const void *) { return text; }\n"
        "extern \"C\" int t_run(void *, const void *const inputs[], void *const outputs[])\n{\n"
        "    aprt_cuda_bad host = {~0ull, 0, 0, 0, 0, 0};\n    (void)inputs, (void)outputs;\n"
        "    take(&param, %" PRId64 ");\n    cudaMemset(param, 0, %" PRId64 ");\n"
        "    take((char **)&arena, %" PRId64 ");\n    take((char **)&scratch, %" PRId64 ");\n"
        "    take((char **)&bad, sizeof *bad);\n    cudaMemset(arena, 0xff, %" PRId64 ");\n"
        "    cudaMemcpy(bad, &host, sizeof host, cudaMemcpyHostToDevice);\n",
        ap_max_i64(1, p->param_bytes), p->param_bytes, arena, scratch, arena);
    cuda_write_ports(&t, p, false);
    for (int point = 0; point < points; point++)
        ap_text_addf(&t, "    rank%d();\n", point);
    ap_text_add(&t, "    cudaDeviceSynchronize();\n    cudaMemcpy(&host, bad, sizeof host, cudaMemcpyDeviceToHost);\n");
    cuda_write_ports(&t, p, true);
    ap_text_add(&t, "    cudaFree(arena);\n    cudaFree(param);\n    cudaFree(scratch);\n    cudaFree(bad);\n"
                    "    snprintf(text, sizeof text, \"instruction %d: index %lld is outside [%lld, %lld)\",\n"
                    "             (int)(host.key >> 40), host.index, host.first, host.limit);\n"
                    "    return host.key != ~0ull;\n}\n");
    return ap_emit_file(e, "run.cu", &t);
}

/* Writes kernels.cu, kernels.h, run.cu into opt->dir and compiles DIR/test.so. `lib`: the shim's library. */
static inline int cuda_build(ap_ctx *ctx, const ap_program *g, const ap_backend_options *opt, const char *source,
                             const char *lib, const char *flags, const char *link_flags)
{
    ap_emit e;
    char command[2048];
    ap_target *target = AP_NEW_ARRAY(&ctx->scratch, ap_target, g->stages.len);
    for (uint32_t i = 0; i < g->stages.len; i++)
        target[i] = AP_TARGET_CUDA;
    const ap_backend_options on_gpus = {opt->dir, opt->name, opt->header, opt->weights, target};
    if (ap_emit_begin(&e, ctx, g, &on_gpus) != AP_OK || ap_cuda_emit_kernels(&e) != AP_OK ||
        cuda_write_run(&e) != AP_OK)
        return 1;
    snprintf(command, sizeof command,
             "cd %s && for f in kernels run; do c++ -std=c++17 -O1 -g -fPIC -ffp-contract=off -Wall -Wextra "
             "-Wno-unknown-pragmas "
             "-Wno-unused-function -Wno-unused-parameter -Wno-unused-variable -Wno-maybe-uninitialized %s "
             "-I%s/tests/cudashim/include -I%s/runtime -I%s/runtime/cuda "
             "-include cudashim.h "
             "-x c++ -c $f.cu -o $f.o || exit 1; done && c++ -shared -Wl,-z,nodelete %s -o test.so kernels.o run.o %s",
             opt->dir, flags, source, source, source, link_flags, lib);
    return system(command);
}

#endif
