/* A program in this process: kernels and the functions of stages are compiled, the tables are used where they lie. */
#include "backend/llvm/image.h"
#include "backend/llvm/llvm.h"
#include "backend/llvm/target.h"
#include "runtime/autopar_rt.h"

#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>

#include <stdlib.h>
#include <string.h>

enum { KERNELS_TOGETHER = 4 }; /* in one module */

struct ap_llvm_jit {
    ap_arena arena; /* of the image */
    ap_image image;
    uint32_t nsources;
    aprt_tensor_source *source;
    LLVMOrcLLJITRef engine;
};

/* What programs call. They are linked into this one, and the engine does not look there. */
static const struct {
    const char *name;
    void (*function)(void);
} runtime[] = {
#define FUNCTION(name)                                                                                                 \
    {                                                                                                                  \
#name, (void (*)(void))name                                                                                    \
    }
    FUNCTION(aprt_profile_mark),
    FUNCTION(aprt_fail_index),
    FUNCTION(aprt_fail_call),
    FUNCTION(aprt_param_fetch),
    FUNCTION(aprt_exchange_run),
    FUNCTION(aprt_recv),
    FUNCTION(aprt_claim),
    FUNCTION(aprt_stage_run),
    FUNCTION(aprt_free),
    FUNCTION(aprt_send),
    FUNCTION(aprt_topk_f32),
    FUNCTION(aprt_topk_f64),
    FUNCTION(aprt_topk_f16),
    FUNCTION(aprt_topk_bf16),
    FUNCTION(aprt_topk_i8),
    FUNCTION(aprt_topk_u8),
    FUNCTION(aprt_topk_i16),
    FUNCTION(aprt_topk_u16),
    FUNCTION(aprt_topk_i32),
    FUNCTION(aprt_topk_u32),
    FUNCTION(aprt_topk_i64),
    FUNCTION(aprt_topk_u64),
    FUNCTION(aprt_gemm_f32),
    FUNCTION(aprt_gemm_f64),
    FUNCTION(aprt_gemm_panels_f32),
    FUNCTION(aprt_gemm_panels_f64),
    FUNCTION(aprt_conv_prepare),
    FUNCTION(aprt_conv_run),
    FUNCTION(aprt_conv_release),
#undef FUNCTION
};

static ap_status fail(ap_ctx *ctx, LLVMErrorRef error)
{
    char *text = LLVMGetErrorMessage(error);
    ap_status status = ap_fail(ctx, AP_ERR_BUG, 0, "LLVM: %s", text);
    LLVMDisposeErrorMessage(text);
    return status;
}

/* The runtime's functions, and the tables that code names. */
static ap_status define_symbols(ap_ctx *ctx, ap_llvm_jit *jit)
{
    size_t most = sizeof runtime / sizeof *runtime + jit->image.blocks.len, n = 0;
    LLVMOrcCSymbolMapPair *pair = AP_NEW_ARRAY(&ctx->scratch, LLVMOrcCSymbolMapPair, most);
    const LLVMJITSymbolFlags flags = {LLVMJITSymbolGenericFlagsExported, 0};
    for (size_t i = 0; i < sizeof runtime / sizeof *runtime; i++)
        pair[n++] = (LLVMOrcCSymbolMapPair){LLVMOrcLLJITMangleAndIntern(jit->engine, runtime[i].name),
                                            {(LLVMOrcExecutorAddress)(uintptr_t)runtime[i].function, flags}};
    for (uint32_t i = 0; i < jit->image.blocks.len; i++) {
        const ap_image_block *b = &jit->image.blocks.at[i];
        if (b->name)
            pair[n++] = (LLVMOrcCSymbolMapPair){LLVMOrcLLJITMangleAndIntern(jit->engine, b->name),
                                                {(LLVMOrcExecutorAddress)(uintptr_t)b->bytes, flags}};
    }
    LLVMErrorRef error =
        LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit->engine), LLVMOrcAbsoluteSymbols(pair, n));
    return error ? fail(ctx, error) : AP_OK;
}

/* The functions of <math.h>, and those of the C library that the optimiser calls. */
static ap_status add_process(ap_ctx *ctx, ap_llvm_jit *jit)
{
    LLVMOrcDefinitionGeneratorRef generator;
    LLVMErrorRef error = LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
        &generator, LLVMOrcLLJITGetGlobalPrefix(jit->engine), NULL, NULL);
    if (error)
        return fail(ctx, error);
    LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(jit->engine), generator);
    return AP_OK;
}

static ap_status start_engine(ap_ctx *ctx, ap_llvm_jit *jit, const char *march)
{
    LLVMTargetMachineRef machine;
    AP_TRY(ap_ll_machine(ctx, march, &machine));
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder,
                                                  LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine));
    LLVMErrorRef error = LLVMOrcCreateLLJIT(&jit->engine, builder);
    if (error)
        return fail(ctx, error);
    AP_TRY(define_symbols(ctx, jit));
    return add_process(ctx, jit);
}

/* ---- code ---- */

typedef struct units {
    ap_emit *e;
    const char *march;
    uint32_t n;
    ap_ll_unit *at;
} units;

static ap_status begin(units *u, const char *name, ap_ll_unit **out)
{
    ap_ll_unit *unit = &u->at[u->n];
    AP_TRY(ap_ll_machine(u->e->ctx, u->march, &unit->machine));
    ap_ll_begin(&unit->b, u->e, name, unit->machine);
    u->n++;
    *out = unit;
    return AP_OK;
}

/* Kernels in modules of a few, so that they are compiled side by side, and one module for the functions of stages.
 * Which are together depends on the program alone. */
static ap_status make_units(units *u)
{
    ap_ll_unit *unit;
    const uint32_t nkernels = u->e->nkernels;
    u->at = AP_NEW_ARRAY(&u->e->ctx->scratch, ap_ll_unit, nkernels / KERNELS_TOGETHER + 2);
    AP_TRY(begin(u, "program", &unit));
    for (uint32_t s = 0; s < u->e->program->stages.len; s++) {
        ap_emit_turn(u->e, s);
        ap_ll_stage(&unit->b);
    }
    for (uint32_t k = 0; k < nkernels; k += KERNELS_TOGETHER) {
        AP_TRY(begin(u, "kernels", &unit));
        AP_TRY(ap_ll_kernels(&unit->b, k, k + KERNELS_TOGETHER < nkernels ? k + KERNELS_TOGETHER : nkernels));
    }
    return AP_OK;
}

static ap_status add_object(ap_ctx *ctx, ap_llvm_jit *jit, ap_ll_unit *u)
{
    AP_TRY(ap_ll_unit_status(ctx, u));
    LLVMErrorRef error = LLVMOrcLLJITAddObjectFile(jit->engine, LLVMOrcLLJITGetMainJITDylib(jit->engine), u->object);
    u->object = NULL; /* taken */
    return error ? fail(ctx, error) : AP_OK;
}

static ap_status compile(ap_emit *e, ap_llvm_jit *jit, const char *march)
{
    units u = {.e = e, .march = march};
    ap_status status = make_units(&u);
    if (status == AP_OK)
        ap_ll_compile_all(u.at, u.n);
    for (uint32_t i = 0; i < u.n; i++) {
        if (status == AP_OK)
            status = add_object(e->ctx, jit, &u.at[i]);
        if (u.at[i].object)
            LLVMDisposeMemoryBuffer(u.at[i].object);
        LLVMDisposeMessage(u.at[i].message);
        ap_ll_deinit(&u.at[i].b);
        LLVMDisposeTargetMachine(u.at[i].machine);
    }
    return status;
}

/* Functions of the stages go into the tables. */
static ap_status resolve(ap_ctx *ctx, ap_llvm_jit *jit)
{
    for (uint32_t i = 0; i < jit->image.blocks.len; i++) {
        ap_image_block *b = &jit->image.blocks.at[i];
        for (uint32_t k = 0; k < b->pointers.len; k++) {
            LLVMOrcExecutorAddress address;
            if (!b->pointers.at[k].symbol)
                continue;
            LLVMErrorRef error = LLVMOrcLLJITLookup(jit->engine, &address, b->pointers.at[k].symbol);
            if (error)
                return fail(ctx, error);
            uintptr_t at = (uintptr_t)address;
            memcpy(b->bytes + b->pointers.at[k].at, &at, sizeof at);
        }
    }
    return AP_OK;
}

static ap_status hold_weights(ap_emit *e, ap_llvm_jit *jit)
{
    ap_emit_tensor *tensor;
    AP_TRY(ap_emit_hold_weights(e, &jit->arena, &jit->nsources, &tensor));
    jit->source = AP_NEW_ARRAY(&jit->arena, aprt_tensor_source, jit->nsources + 1);
    for (uint32_t i = 0; i < jit->nsources; i++)
        jit->source[i] = (aprt_tensor_source){tensor[i].name, tensor[i].bytes, tensor[i].size, tensor[i].mapped};
    return AP_OK;
}

static ap_status make_program(ap_ctx *ctx, const ap_program *p, const char *name, const char *march, ap_llvm_jit *jit)
{
    ap_emit e;
    const ap_backend_options options = {.name = name};
    AP_TRY(ap_emit_begin(&e, ctx, p, &options));
    AP_TRY(hold_weights(&e, jit));
    AP_TRY(ap_image_make(&e, &jit->arena, &jit->image));
    AP_TRY(start_engine(ctx, jit, march));
    AP_TRY(compile(&e, jit, march));
    return resolve(ctx, jit);
}

ap_status ap_llvm_jit_open(ap_ctx *ctx, const ap_program *p, const char *name, const char *march, ap_llvm_jit **out)
{
    *out = NULL;
    ap_llvm_jit *jit = calloc(1, sizeof *jit);
    if (!jit)
        return ap_fail(ctx, AP_ERR_ENV, 0, "out of memory");
    ap_arena_init(&jit->arena, ctx->scratch.out_of_memory, ctx->scratch.user);
    ap_status status = make_program(ctx, p, name, march, jit);
    if (status == AP_OK)
        *out = jit;
    else
        ap_llvm_jit_close(jit);
    return status;
}

const aprt_program *ap_llvm_jit_program(const ap_llvm_jit *jit)
{
    return (const aprt_program *)(const void *)jit->image.blocks.at[jit->image.program].bytes;
}

const aprt_tensor_source *ap_llvm_jit_weights(const ap_llvm_jit *jit, uint32_t *out_count)
{
    *out_count = jit->nsources;
    return jit->source;
}

void ap_llvm_jit_close(ap_llvm_jit *jit)
{
    if (!jit)
        return;
    if (jit->engine)
        LLVMConsumeError(LLVMOrcDisposeLLJIT(jit->engine));
    ap_arena_deinit(&jit->arena);
    free(jit);
}
