/* kernels.cu and kernels.h of a program for GPUs: above each kernel what it computes and what it moves, then the
 * kernel, then the function that the stage calls. */
#include "backend/cuda/cuda.h"

#include <inttypes.h>
#include <string.h>

/* ---- parameters ---- */

static bool is_checked(const ap_kernel *k)
{
    return ap_emit_nest_checks(k);
}

void ap_cuda_parameters(const ap_emit *e, ap_text *t, uint32_t index, bool restricted)
{
    const ap_kernel *k = e->kernel[index];
    const char *comma = "";
    for (uint32_t i = k->kind == AP_KERNEL_GEMM ? 2 : 0; i < k->noperands; i++) {
        ap_text_addf(t, "%s%s%s *%s", comma, k->operand[i].written ? "" : "const ", ap_dtype_c(k->operand[i].dtype),
                     restricted ? "__restrict__ " : "");
        ap_emit_operand(t, k, i);
        comma = ", ";
    }
    for (uint32_t i = 0; i < k->nints; i++) {
        ap_text_addf(t, "%sint64_t n%u", comma, i);
        comma = ", ";
    }
    if (ap_cuda_scratch_bytes(e, index)) {
        ap_text_addf(t, "%sunsigned char *scratch", comma);
        comma = ", ";
    }
    if (is_checked(k))
        ap_text_addf(t, "%saprt_cuda_bad *bad, unsigned long long key", comma);
}

void ap_cuda_arguments(const ap_emit *e, ap_text *t, uint32_t index)
{
    const ap_kernel *k = e->kernel[index];
    for (uint32_t i = k->kind == AP_KERNEL_GEMM ? 2 : 0; i < k->noperands; i++) {
        ap_text_add(t, ", ");
        ap_emit_operand(t, k, i);
    }
    for (uint32_t i = 0; i < k->nints; i++)
        ap_text_addf(t, ", n%u", i);
    if (ap_cuda_scratch_bytes(e, index))
        ap_text_add(t, ", (unsigned char *)aprt_cuda_scratch(d)");
    if (is_checked(k))
        ap_text_add(t, ", aprt_cuda_bad_of(d), aprt_cuda_key(d)");
}

int64_t ap_cuda_scratch_bytes(const ap_emit *e, uint32_t index)
{
    const ap_kernel *k = e->kernel[index];
    if (k->kind != AP_KERNEL_NEST)
        return 0;
    ap_nest_facts f = ap_nest_find(&e->ctx->scratch, e->program, k);
    ap_cuda_plan p = ap_cuda_plan_nest(e, index, &f);
    return ap_cuda_plan_scratch(&p, &f);
}

/* void NAME_k_softmax(aprt_device *d, const float *x0, float *y0, int64_t n0) */
static void print_prototype(const ap_emit *e, ap_text *t, uint32_t index)
{
    const ap_kernel *k = e->kernel[index];
    ap_text_addf(t, "void %s_k_%s(aprt_device *d", e->opt->name, ap_name_str(e->ctx, k->name));
    for (uint32_t i = 0; i < k->noperands; i++) {
        ap_text_addf(t, ", %s%s *", k->operand[i].written ? "" : "const ", ap_dtype_c(k->operand[i].dtype));
        ap_emit_operand(t, k, i);
    }
    for (uint32_t i = 0; i < k->nints; i++)
        ap_text_addf(t, ", int64_t n%u", i);
    ap_text_add(t, ")");
}

/* ---- what is said above a kernel ---- */

/* Elements of operand i that the nest touches. */
static int64_t touched(const ap_kernel *k, uint32_t i)
{
    const ap_nest *n = &k->nest;
    int64_t count = 1;
    for (int l = 0; l < n->nouter + n->ninner; l++)
        if (k->operand[i].stride[l] != 0)
            count = ap_sat_mul(count, n->extent[l]);
    return count;
}

static void print_bytes(ap_text *t, const ap_kernel *k)
{
    int64_t bytes[2] = {0};
    if (k->kind != AP_KERNEL_NEST)
        return;
    for (uint32_t i = 0; i < k->noperands; i++)
        bytes[k->operand[i].written] =
            ap_sat_add(bytes[k->operand[i].written], ap_sat_mul(touched(k, i), ap_dtype_bytes(k->operand[i].dtype)));
    ap_text_addf(t, "\n * reads %" PRId64 " bytes, writes %" PRId64, bytes[0], bytes[1]);
}

static void print_plan(const ap_emit *e, ap_text *t, uint32_t index)
{
    const ap_kernel *k = e->kernel[index];
    if (k->kind != AP_KERNEL_NEST)
        return;
    ap_nest_facts f = ap_nest_find(&e->ctx->scratch, e->program, k);
    ap_cuda_plan p = ap_cuda_plan_nest(e, index, &f);
    if (p.way == AP_CUDA_THREADS)
        ap_text_addf(t, "; %" PRId64 " threads", p.rows);
    else if (p.way == AP_CUDA_ROWS)
        ap_text_addf(t, "; %" PRId64 " rows of %d threads", p.rows, p.group);
    else
        ap_text_addf(t, "; %" PRId64 " blocks of 32 rows by %d", p.rows, p.group);
    if (p.parts > 1)
        ap_text_addf(t, ", each in %" PRId64 " parts", p.parts);
    if (p.owners > 1)
        ap_text_addf(t, ", %d for the rows of an update", p.owners);
    if (p.vector > 1)
        ap_text_addf(t, ", %d elements at a time", p.vector);
    for (int l = 0; l < f.n->nouter; l++)
        if (p.serial[l])
            ap_text_addf(t, ", loop %d in order", l);
}

static void print_about(const ap_emit *e, ap_text *t, uint32_t index)
{
    const ap_kernel *k = e->kernel[index];
    ap_text_add(t, "\n/* ");
    ap_emit_comment(t, k->about && *k->about ? k->about : ap_name_str(e->ctx, k->name), true);
    print_bytes(t, k);
    print_plan(e, t, index);
    ap_text_add(t, " */\n");
}

/* ---- files ---- */

const char *ap_cuda_kernels_header(const ap_emit *e)
{
    return ap_emit_has_target(e, AP_TARGET_CPU) ? "kernels_cuda.h" : "kernels.h";
}

static ap_status write_prototypes(const ap_emit *e)
{
    ap_text t;
    ap_text_init(&t, &e->ctx->scratch);
    ap_emit_top(e, &t, "the kernels, private to this model");
    ap_text_addf(
        &t,
        "#ifndef %s_KERNELS_CUDA_H\n#define %s_KERNELS_CUDA_H\n\n#include <autopar_rt_cuda.h>\n\n#ifdef __cplusplus\n"
        "extern \"C\" {\n#endif\n\n",
        e->opt->name, e->opt->name);
    for (uint32_t i = 0; i < e->nkernels; i++) {
        const ap_kernel *k = e->kernel[i];
        const char *name = ap_name_str(e->ctx, k->name);
        if (!ap_emit_kernel_is_for(e, i, AP_TARGET_CUDA))
            continue;
        ap_text_add(&t, "APRT_HIDDEN ");
        if (k->kind == AP_KERNEL_CONV) {
            ap_text_addf(&t, "extern const aprt_conv %s_k_%s;\n", e->opt->name, name);
            continue;
        }
        print_prototype(e, &t, i);
        ap_text_add(&t, ";\n");
        if (k->kind == AP_KERNEL_GEMM)
            ap_text_addf(&t, "APRT_HIDDEN extern const aprt_cuda_product %s_p_%s;\n", e->opt->name, name);
    }
    ap_text_add(&t, "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    return ap_emit_file(e, ap_cuda_kernels_header(e), &t);
}

static void print_unused(const ap_emit *e, ap_text *t, uint32_t index, const char *body)
{
    const ap_kernel *k = e->kernel[index];
    ap_text name;
    for (uint32_t i = 0; i < k->noperands; i++) {
        ap_text_init(&name, &e->ctx->scratch);
        ap_emit_operand(&name, k, i);
        if (!ap_cuda_mentions(body, ap_text_str(&name)))
            ap_text_addf(t, "    (void)%s;\n", ap_text_str(&name));
    }
    if (!ap_cuda_mentions(body, "d"))
        ap_text_add(t, "    (void)d;\n");
}

static void print_kernel(const ap_emit *e, ap_text *t, uint32_t index)
{
    ap_text launch;
    ap_text_init(&launch, &e->ctx->scratch);
    switch (e->kernel[index]->kind) {
    case AP_KERNEL_GEMM:
        ap_cuda_gemm(e, index, t, &launch);
        break;
    case AP_KERNEL_POOL:
        ap_cuda_pool(e, index, t, &launch);
        break;
    case AP_KERNEL_TOPK:
        ap_cuda_topk(e, index, t, &launch);
        break;
    default:
        ap_cuda_nest(e, index, t, &launch);
        break;
    }
    ap_text_add(t, "\nextern \"C\" ");
    print_prototype(e, t, index);
    ap_text_add(t, "\n{\n");
    print_unused(e, t, index, ap_text_str(&launch));
    ap_text_add(t, ap_text_str(&launch));
    if (strstr(ap_text_str(&launch), "APRT_LAUNCH"))
        ap_text_add(t, "    aprt_cuda_launched(d);\n");
    ap_text_add(t, "}\n");
}

ap_status ap_cuda_emit_kernels(ap_emit *e)
{
    ap_text t;
    ap_text_init(&t, &e->ctx->scratch);
    AP_TRY(write_prototypes(e));
    ap_emit_top(e, &t, "the kernels");
    ap_text_addf(&t, "#include <autopar_rt_device.h>\n\n#include \"%s\"\n", ap_cuda_kernels_header(e));
    for (uint32_t i = 0; i < e->nkernels; i++) {
        const ap_kernel *k = e->kernel[i];
        if (!ap_emit_kernel_is_for(e, i, AP_TARGET_CUDA))
            continue;
        print_about(e, &t, i);
        if (k->kind != AP_KERNEL_CONV) {
            print_kernel(e, &t, i);
            continue;
        }
        if (!ap_emit_conv_knows(k))
            return ap_fail(e->ctx, AP_ERR_BUG, 0, "a convolution with a step that there is none for");
        ap_emit_conv_table(e, &t, k);
    }
    return ap_emit_file(e, "kernels.cu", &t);
}
