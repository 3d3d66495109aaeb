/* A program as object files: kernels.o, program.o (functions of stages, tables, API), main.o. They stand where the C
 * printer's sources do; what lies beside them, and how they are linked, is as there. */
#include "backend/llvm/image.h"
#include "backend/llvm/llvm.h"
#include "backend/llvm/target.h"
#include "ir/base/file.h"
#include "runtime/autopar_rt.h"

#include <string.h>

typedef struct object {
    ap_emit *e;
    LLVMTargetMachineRef machine;
} object;

static const char *format_name(const ap_emit *e, const char *suffix)
{
    return ap_name_str(e->ctx, ap_name_format(e->ctx, "%s%s", e->opt->name, suffix));
}

/* Compiles the module, writes DIR/file, and ends the module. */
static ap_status finish(object *o, ap_ll *b, const char *file, ap_status status)
{
    ap_ctx *ctx = o->e->ctx;
    ap_ll_unit u = {.b = *b, .machine = o->machine};
    if (status != AP_OK) {
        ap_ll_deinit(b);
        return status;
    }
    ap_ll_compile(&u);
    AP_TRY(ap_ll_unit_status(ctx, &u));
    const char *path = ap_name_str(ctx, ap_name_format(ctx, "%s/%s", o->e->opt->dir, file));
    status = ap_file_write(ctx, path, LLVMGetBufferStart(u.object), LLVMGetBufferSize(u.object));
    LLVMDisposeMemoryBuffer(u.object);
    return status;
}

/* ---- tables ---- */

/* Bytes and pointers in turn: fields of a packed structure. */
typedef struct fields {
    ap_ll_value *value;
    LLVMTypeRef *type;
    unsigned n;
} fields;

static void add_bytes(ap_ll *b, fields *f, const char *bytes, size_t size)
{
    if (!size)
        return;
    f->type[f->n] = LLVMArrayType2(b->i8, size);
    f->value[f->n++] = LLVMConstStringInContext2(b->context, bytes, size, true);
}

/* The address of a symbol: a function of a stage or of the runtime. */
static ap_ll_value symbol_value(ap_ll *b, const char *name)
{
    ap_ll_value function = LLVMGetNamedFunction(b->module, name);
    return function ? function : LLVMAddFunction(b->module, name, LLVMFunctionType(b->none, NULL, 0, false));
}

static fields split(ap_ll *b, const ap_image_block *block, const ap_ll_value *global)
{
    ap_arena *arena = &b->e->ctx->scratch;
    size_t most = 2 * (size_t)block->pointers.len + 1, at = 0;
    fields f = {AP_NEW_ARRAY(arena, ap_ll_value, most), AP_NEW_ARRAY(arena, LLVMTypeRef, most), 0};
    for (uint32_t i = 0; i < block->pointers.len; i++) {
        const ap_image_pointer *p = &block->pointers.at[i];
        add_bytes(b, &f, block->bytes + at, p->at - at);
        f.type[f.n] = b->ptr;
        f.value[f.n] = NULL;
        if (global)
            f.value[f.n] = p->symbol ? symbol_value(b, p->symbol) : global[p->block];
        f.n++;
        at = p->at + sizeof(char *);
    }
    add_bytes(b, &f, block->bytes + at, block->size - at);
    return f;
}

/* A block that the code of this module names has been declared; the table takes its place. */
static void take_name(ap_ll_value global, ap_ll *b, const char *name)
{
    ap_ll_value declared = LLVMGetNamedGlobal(b->module, name);
    if (declared) {
        LLVMReplaceAllUsesWith(declared, global);
        LLVMDeleteGlobal(declared);
    }
    LLVMSetValueName2(global, name, strlen(name));
}

static void make_tables(ap_ll *b, const ap_image *image)
{
    uint32_t n = image->blocks.len;
    ap_ll_value *global = AP_NEW_ARRAY(&b->e->ctx->scratch, ap_ll_value, n);
    for (uint32_t i = 0; i < n; i++) {
        const ap_image_block *block = &image->blocks.at[i];
        fields f = split(b, block, NULL);
        global[i] = LLVMAddGlobal(b->module, LLVMStructTypeInContext(b->context, f.type, f.n, true), "");
        LLVMSetGlobalConstant(global[i], true);
        LLVMSetAlignment(global[i], 16);
        LLVMSetLinkage(global[i], LLVMInternalLinkage);
        if (block->name)
            take_name(global[i], b, block->name);
        if (block->visible)
            LLVMSetLinkage(global[i], LLVMExternalLinkage);
    }
    for (uint32_t i = 0; i < n; i++) {
        fields f = split(b, &image->blocks.at[i], global);
        LLVMSetInitializer(global[i], LLVMConstStructInContext(b->context, f.value, f.n, true));
    }
}

/* ---- the API ---- */

static ap_ll_value open_api(ap_ll *b, const char *suffix, LLVMTypeRef result, unsigned n)
{
    LLVMTypeRef param[3] = {b->ptr, b->ptr, b->ptr};
    return ap_ll_open_function(b, format_name(b->e, suffix), LLVMFunctionType(result, param, n, false));
}

/* aprt_options o = {.weights = options ? options->weights : NULL}; both begin with the path. */
static void make_open(ap_ll *b)
{
    ap_ll_value function = open_api(b, "_open", b->i32, 2), zero = ap_ll_int(b, 0);
    ap_ll_value given = LLVMGetParam(function, 0), options = ap_ll_stack(b, b->i8, sizeof(aprt_options), 16);
    LLVMBuildMemSet(b->builder, options, LLVMConstInt(b->i8, 0, false), ap_ll_int(b, sizeof(aprt_options)), 16);
    LLVMBasicBlockRef after = ap_ll_open_if(b, LLVMBuildIsNotNull(b->builder, given, ""));
    ap_ll_write(b, options, zero, ap_ll_read(b, b->ptr, given, zero));
    ap_ll_close_if(b, after);
    ap_ll_value args[3] = {LLVMGetNamedGlobal(b->module, format_name(b->e, "_program")), options,
                           LLVMGetParam(function, 1)};
    ap_ll_close_function(b, ap_ll_call(b, "aprt_open", b->i32, 3, args));
}

/* Hands its arguments on. */
static void make_wrapper(ap_ll *b, const char *suffix, const char *runtime, LLVMTypeRef result, unsigned n)
{
    ap_ll_value function = open_api(b, suffix, result, n), args[3];
    LLVMGetParams(function, args);
    ap_ll_value value = ap_ll_call(b, runtime, result, n, args);
    ap_ll_close_function(b, result == b->none ? NULL : value);
}

/* ---- the files ---- */

static ap_status make_kernels(object *o)
{
    ap_ll b;
    ap_ll_begin(&b, o->e, "kernels", o->machine);
    return finish(o, &b, "kernels.o", ap_ll_kernels(&b, 0, o->e->nkernels));
}

static ap_status make_program(object *o)
{
    ap_ll b;
    ap_image image;
    ap_ll_begin(&b, o->e, "program", o->machine);
    for (uint32_t s = 0; s < o->e->program->stages.len; s++) {
        ap_emit_turn(o->e, s);
        ap_ll_stage(&b);
    }
    ap_status status = ap_image_make(o->e, &o->e->ctx->scratch, &image);
    if (status == AP_OK) {
        make_tables(&b, &image);
        make_open(&b);
        make_wrapper(&b, "_run", "aprt_run", b.i32, 3);
        make_wrapper(&b, "_close", "aprt_close", b.none, 1);
        make_wrapper(&b, "_error", "aprt_error", b.ptr, 1);
    }
    return finish(o, &b, "program.o", status);
}

static ap_status make_main(object *o)
{
    ap_ll b;
    ap_ll_begin(&b, o->e, "main", o->machine);
    LLVMTypeRef param[2] = {b.i32, b.ptr};
    ap_ll_value function = ap_ll_open_function(&b, "main", LLVMFunctionType(b.i32, param, 2, false));
    ap_ll_value args[3] = {LLVMGetParam(function, 0), LLVMGetParam(function, 1),
                           LLVMAddGlobal(b.module, b.i8, format_name(o->e, "_program"))};
    ap_ll_close_function(&b, ap_ll_call(&b, "aprt_main", b.i32, 3, args));
    return finish(o, &b, "main.o", AP_OK);
}

ap_status ap_backend_llvm_emit(ap_ctx *ctx, const ap_program *p, const ap_backend_options *opt, const char *march)
{
    ap_emit e;
    object o = {.e = &e};
    AP_TRY(ap_ll_machine(ctx, march, &o.machine));
    ap_status status = ap_emit_begin(&e, ctx, p, opt);
    if (status == AP_OK)
        status = ap_emit_header(&e);
    if (status == AP_OK)
        status = ap_emit_weights(&e);
    if (status == AP_OK)
        status = make_kernels(&o);
    if (status == AP_OK)
        status = make_program(&o);
    if (status == AP_OK)
        status = make_main(&o);
    LLVMDisposeTargetMachine(o.machine);
    return status == AP_OK ? ap_emit_object_files(&e) : status;
}
