#include "backend/llvm/build.h"

#include <llvm-c/DebugInfo.h>
#include <llvm-c/IRReader.h>

#include <string.h>

/* What parallel loops call their memory accesses: a node of its own, which only text can make. */
static const char frame[] = "!autopar.accesses = !{!0}\n!0 = distinct !{}\n";

static void start_module(ap_ll *b, const char *name)
{
    char *message = NULL;
    LLVMMemoryBufferRef text = LLVMCreateMemoryBufferWithMemoryRange(frame, sizeof frame - 1, name, true);
    if (LLVMParseIRInContext(b->context, text, &b->module, &message)) { /* takes the buffer */
        LLVMDisposeMessage(message);
        b->module = LLVMModuleCreateWithNameInContext(name, b->context);
        return;
    }
    ap_ll_value node;
    LLVMGetNamedMetadataOperands(b->module, "autopar.accesses", &node);
    b->accesses = LLVMValueAsMetadata(node);
}

void ap_ll_init(ap_ll *b, const ap_emit *e, const char *module)
{
    *b = (ap_ll){.e = e, .context = LLVMContextCreate()};
    start_module(b, module);
    b->builder = LLVMCreateBuilderInContext(b->context);
    b->i1 = LLVMInt1TypeInContext(b->context);
    b->i8 = LLVMInt8TypeInContext(b->context);
    b->i16 = LLVMInt16TypeInContext(b->context);
    b->i32 = LLVMInt32TypeInContext(b->context);
    b->i64 = LLVMInt64TypeInContext(b->context);
    b->f32 = LLVMFloatTypeInContext(b->context);
    b->f64 = LLVMDoubleTypeInContext(b->context);
    b->ptr = LLVMPointerTypeInContext(b->context, 0);
    b->none = LLVMVoidTypeInContext(b->context);
}

void ap_ll_deinit(ap_ll *b)
{
    if (b->builder)
        LLVMDisposeBuilder(b->builder);
    if (b->module)
        LLVMDisposeModule(b->module);
    if (b->context)
        LLVMContextDispose(b->context);
    *b = (ap_ll){0};
}

/* ---- types and numbers ---- */

LLVMTypeRef ap_ll_register(const ap_ll *b, ap_dtype t)
{
    switch (t) {
    case AP_F32:
    case AP_F16:
    case AP_BF16:
        return b->f32;
    case AP_F64:
        return b->f64;
    case AP_BOOL:
        return b->i32;
    default:
        return LLVMIntTypeInContext(b->context, 8 * (unsigned)ap_dtype_bytes(t));
    }
}

LLVMTypeRef ap_ll_memory(const ap_ll *b, ap_dtype t)
{
    if (t == AP_F32 || t == AP_F64)
        return ap_ll_register(b, t);
    return LLVMIntTypeInContext(b->context, 8 * (unsigned)ap_dtype_bytes(t));
}

ap_ll_value ap_ll_int(const ap_ll *b, int64_t x)
{
    return LLVMConstInt(b->i64, (unsigned long long)x, true);
}

ap_ll_value ap_ll_int32(const ap_ll *b, int64_t x)
{
    return LLVMConstInt(b->i32, (unsigned long long)x, true);
}

ap_ll_value ap_ll_literal(const ap_ll *b, ap_dtype t, ap_scalar x)
{
    LLVMTypeRef type = ap_ll_register(b, t);
    return ap_dtype_is_float(t) ? LLVMConstReal(type, x.f) : LLVMConstInt(type, (unsigned long long)x.i, true);
}

static ap_ll_value with_flags(ap_ll_value x, LLVMFastMathFlags flags)
{
    if (LLVMIsAInstruction(x) && LLVMCanValueUseFastMathFlags(x))
        LLVMSetFastMathFlags(x, LLVMGetFastMathFlags(x) | flags);
    return x;
}

ap_ll_value ap_ll_contract(ap_ll_value x)
{
    return with_flags(x, LLVMFastMathAllowContract);
}

ap_ll_value ap_ll_reorder(ap_ll_value x)
{
    return with_flags(x, LLVMFastMathAllowReassoc | LLVMFastMathAllowContract);
}

/* ---- functions ---- */

ap_ll_value ap_ll_open_function(ap_ll *b, const char *name, LLVMTypeRef type)
{
    b->function = LLVMGetNamedFunction(b->module, name);
    if (!b->function)
        b->function = LLVMAddFunction(b->module, name, type);
    b->entry = LLVMAppendBasicBlockInContext(b->context, b->function, "entry");
    LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(b->context, b->function, "body");
    ap_ll_attribute(b, b->function, (unsigned)LLVMAttributeFunctionIndex, "nounwind");
    LLVMPositionBuilderAtEnd(b->builder, body);
    b->group = NULL;
    return b->function;
}

void ap_ll_close_function(ap_ll *b, ap_ll_value value)
{
    if (value)
        LLVMBuildRet(b->builder, value);
    else
        LLVMBuildRetVoid(b->builder);
    LLVMPositionBuilderAtEnd(b->builder, b->entry);
    LLVMBuildBr(b->builder, LLVMGetNextBasicBlock(b->entry));
    b->function = NULL;
    b->entry = NULL;
}

ap_ll_value ap_ll_stack(ap_ll *b, LLVMTypeRef type, int64_t count, unsigned align)
{
    LLVMBasicBlockRef here = LLVMGetInsertBlock(b->builder);
    LLVMPositionBuilderAtEnd(b->builder, b->entry);
    ap_ll_value place = LLVMBuildAlloca(b->builder, LLVMArrayType2(type, (uint64_t)count), "");
    if (align)
        LLVMSetAlignment(place, align);
    LLVMPositionBuilderAtEnd(b->builder, here);
    return place;
}

void ap_ll_attribute(ap_ll *b, ap_ll_value function, unsigned index, const char *name)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(function, index, LLVMCreateEnumAttribute(b->context, kind, 0));
}

ap_ll_value ap_ll_call(ap_ll *b, const char *name, LLVMTypeRef result, unsigned n, ap_ll_value *args)
{
    LLVMTypeRef *param = AP_NEW_ARRAY(&b->e->ctx->scratch, LLVMTypeRef, n + 1);
    for (unsigned i = 0; i < n; i++)
        param[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef type = LLVMFunctionType(result, param, n, false);
    ap_ll_value function = LLVMGetNamedFunction(b->module, name);
    if (!function)
        function = LLVMAddFunction(b->module, name, type);
    return LLVMBuildCall2(b->builder, type, function, args, n, "");
}

ap_ll_value ap_ll_intrinsic(ap_ll *b, const char *name, unsigned ntypes, LLVMTypeRef *types, unsigned n,
                            ap_ll_value *args)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    ap_ll_value function = LLVMGetIntrinsicDeclaration(b->module, id, types, ntypes);
    LLVMTypeRef type = LLVMIntrinsicGetType(b->context, id, types, ntypes);
    return LLVMBuildCall2(b->builder, type, function, args, n, "");
}

/* ---- places ---- */

static bool is_zero(ap_ll_value x)
{
    return LLVMIsAConstantInt(x) && LLVMConstIntGetSExtValue(x) == 0;
}

ap_ll_value ap_ll_add(ap_ll *b, ap_ll_value x, ap_ll_value y)
{
    return is_zero(x) ? y : is_zero(y) ? x : LLVMBuildNSWAdd(b->builder, x, y, "");
}

ap_ll_value ap_ll_scale(ap_ll *b, ap_ll_value x, int64_t factor)
{
    return factor == 1 ? x : factor == 0 ? ap_ll_int(b, 0) : LLVMBuildNSWMul(b->builder, x, ap_ll_int(b, factor), "");
}

ap_ll_value ap_ll_strides(ap_ll *b, int loops, const int64_t *stride, const ap_ll_value *loop)
{
    ap_ll_value at = ap_ll_int(b, 0);
    for (int l = 0; l < loops; l++)
        if (stride[l] != 0 && loop[l])
            at = ap_ll_add(b, at, ap_ll_scale(b, loop[l], stride[l]));
    return at;
}

ap_ll_value ap_ll_at(ap_ll *b, LLVMTypeRef type, ap_ll_value base, ap_ll_value index)
{
    return is_zero(index) ? base : LLVMBuildInBoundsGEP2(b->builder, type, base, &index, 1, "");
}

static ap_ll_value in_group(ap_ll *b, ap_ll_value access)
{
    static const char name[] = "llvm.access.group";
    if (b->group)
        LLVMSetMetadata(access, LLVMGetMDKindIDInContext(b->context, name, sizeof name - 1),
                        LLVMMetadataAsValue(b->context, b->group));
    return access;
}

ap_ll_value ap_ll_read(ap_ll *b, LLVMTypeRef type, ap_ll_value base, ap_ll_value index)
{
    return in_group(b, LLVMBuildLoad2(b->builder, type, ap_ll_at(b, type, base, index), ""));
}

void ap_ll_write(ap_ll *b, ap_ll_value base, ap_ll_value index, ap_ll_value x)
{
    in_group(b, LLVMBuildStore(b->builder, x, ap_ll_at(b, LLVMTypeOf(x), base, index)));
}

ap_ll_value ap_ll_load(ap_ll *b, ap_dtype t, ap_ll_value base, ap_ll_value index)
{
    ap_ll_value x = ap_ll_read(b, ap_ll_memory(b, t), base, index);
    if (t == AP_F16 || t == AP_BF16)
        return ap_ll_from_f16(b, t, x);
    if (t == AP_BOOL)
        return LLVMBuildZExt(b->builder, LLVMBuildICmp(b->builder, LLVMIntNE, x, LLVMConstInt(b->i8, 0, false), ""),
                             b->i32, "");
    return x;
}

void ap_ll_store(ap_ll *b, ap_dtype t, ap_ll_value base, ap_ll_value index, ap_ll_value x)
{
    if (t == AP_F16 || t == AP_BF16)
        x = ap_ll_to_f16(b, t, x);
    else if (t == AP_BOOL)
        x = LLVMBuildTrunc(b->builder, x, b->i8, "");
    ap_ll_write(b, base, index, x);
}

/* ---- loops ---- */

static LLVMBasicBlockRef new_block(ap_ll *b, const char *name)
{
    return LLVMAppendBasicBlockInContext(b->context, b->function, name);
}

ap_ll_loop ap_ll_open_loop(ap_ll *b, ap_ll_value first, ap_ll_value end, int64_t step, bool parallel)
{
    ap_ll_loop l = {.end = end, .step = ap_ll_int(b, step), .parallel = parallel, .outer_group = b->group};
    LLVMBasicBlockRef before = LLVMGetInsertBlock(b->builder), body;
    l.head = new_block(b, "loop");
    body = new_block(b, "turn");
    l.exit = new_block(b, "after");
    LLVMBuildBr(b->builder, l.head);
    LLVMPositionBuilderAtEnd(b->builder, l.head);
    l.i = LLVMBuildPhi(b->builder, b->i64, "i");
    LLVMAddIncoming(l.i, &first, &before, 1);
    LLVMBuildCondBr(b->builder, LLVMBuildICmp(b->builder, LLVMIntSLT, l.i, end, ""), body, l.exit);
    LLVMPositionBuilderAtEnd(b->builder, body);
    if (parallel)
        b->group = b->accesses;
    return l;
}

static LLVMMetadataRef text_node(ap_ll *b, const char *text)
{
    return LLVMMDStringInContext2(b->context, text, strlen(text));
}

/* llvm.loop of a parallel loop: it refers to itself, so that no two are one. */
static void mark_parallel(ap_ll *b, ap_ll_value branch)
{
    static const char kind[] = "llvm.loop";
    LLVMMetadataRef accesses[2] = {text_node(b, "llvm.loop.parallel_accesses"), b->group};
    LLVMMetadataRef enable[2] = {text_node(b, "llvm.loop.vectorize.enable"),
                                 LLVMValueAsMetadata(LLVMConstInt(b->i1, 1, false))};
    LLVMMetadataRef temporary = LLVMTemporaryMDNode(b->context, NULL, 0);
    LLVMMetadataRef node[3] = {temporary, LLVMMDNodeInContext2(b->context, accesses, 2),
                               LLVMMDNodeInContext2(b->context, enable, 2)};
    LLVMMetadataRef loop = LLVMMDNodeInContext2(b->context, node, 3);
    LLVMMetadataReplaceAllUsesWith(temporary, loop);
    LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(b->context, kind, sizeof kind - 1),
                    LLVMMetadataAsValue(b->context, loop));
}

void ap_ll_close_loop(ap_ll *b, ap_ll_loop *l)
{
    LLVMBasicBlockRef last = LLVMGetInsertBlock(b->builder);
    ap_ll_value next = LLVMBuildNSWAdd(b->builder, l->i, l->step, "");
    ap_ll_value branch = LLVMBuildBr(b->builder, l->head);
    LLVMAddIncoming(l->i, &next, &last, 1);
    if (l->parallel)
        mark_parallel(b, branch);
    b->group = l->outer_group;
    LLVMPositionBuilderAtEnd(b->builder, l->exit);
}

LLVMBasicBlockRef ap_ll_open_if(ap_ll *b, ap_ll_value condition)
{
    LLVMBasicBlockRef then = new_block(b, "then"), after = new_block(b, "next");
    LLVMBuildCondBr(b->builder, condition, then, after);
    LLVMPositionBuilderAtEnd(b->builder, then);
    return after;
}

void ap_ll_close_if(ap_ll *b, LLVMBasicBlockRef after)
{
    LLVMBuildBr(b->builder, after);
    LLVMPositionBuilderAtEnd(b->builder, after);
}
