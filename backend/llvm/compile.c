/* From modules to objects, side by side. */
#include "backend/llvm/target.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_THREADS = 16 };

/* True when it failed, as LLVM has it. */
static bool optimise(ap_ll_unit *u)
{
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMPassBuilderOptionsSetLoopVectorization(options, true);
    LLVMPassBuilderOptionsSetSLPVectorization(options, true);
    LLVMPassBuilderOptionsSetLoopInterleaving(options, true);
    LLVMPassBuilderOptionsSetLoopUnrolling(options, true);
    LLVMErrorRef error = LLVMRunPasses(u->b.module, "default<O3>", u->machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!error)
        return false;
    char *text = LLVMGetErrorMessage(error);
    u->message = LLVMCreateMessage(text);
    LLVMDisposeErrorMessage(text);
    return true;
}

void ap_ll_compile(ap_ll_unit *u)
{
    if (LLVMVerifyModule(u->b.module, LLVMReturnStatusAction, &u->message)) {
        u->what = "the module is not well-formed";
    } else {
        LLVMDisposeMessage(u->message);
        u->message = NULL;
        if (optimise(u))
            u->what = "a pass failed";
        else if (LLVMTargetMachineEmitToMemoryBuffer(u->machine, u->b.module, LLVMObjectFile, &u->message, &u->object))
            u->what = "no machine code";
    }
    ap_ll_deinit(&u->b);
}

typedef struct queue {
    ap_ll_unit *unit;
    uint32_t n;
    atomic_uint next;
} queue;

static void *work(void *of)
{
    queue *q = of;
    for (uint32_t i; (i = atomic_fetch_add(&q->next, 1)) < q->n;)
        ap_ll_compile(&q->unit[i]);
    return NULL;
}

/* What comes of a unit does not depend on who compiles it, nor on what else is compiled. */
void ap_ll_compile_all(ap_ll_unit *unit, uint32_t n)
{
    queue q = {.unit = unit, .n = n};
    pthread_t thread[MOST_THREADS];
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t started = 0;
    while (started + 1 < n && started + 1 < processors && started < MOST_THREADS &&
           pthread_create(&thread[started], NULL, work, &q) == 0)
        started++;
    work(&q);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

ap_status ap_ll_unit_status(ap_ctx *ctx, ap_ll_unit *u)
{
    if (!u->what)
        return AP_OK;
    ap_status status = ap_ll_fail(ctx, AP_ERR_BUG, u->what, u->message);
    u->message = NULL;
    return status;
}
