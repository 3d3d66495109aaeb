#define _GNU_SOURCE /* memfd_create */
#include "backend/llvm/target.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

ap_status ap_ll_fail(ap_ctx *ctx, ap_status status, const char *what, char *message)
{
    ap_status failed = ap_fail(ctx, status, 0, "LLVM: %s: %s", what, message ? message : "no message");
    LLVMDisposeMessage(message);
    return failed;
}

/* LLVM only warns on standard error about a processor that it does not know, and makes code all the same: whether it
 * says something is how we know. */
static bool is_known(LLVMTargetRef target, const char *triple, const char *march)
{
    int said = memfd_create("llvm", MFD_CLOEXEC), kept = dup(STDERR_FILENO);
    if (said < 0 || kept < 0 || dup2(said, STDERR_FILENO) < 0) {
        close(said);
        close(kept);
        return true;
    }
    LLVMTargetMachineRef machine = LLVMCreateTargetMachine(target, triple, march, "", LLVMCodeGenLevelAggressive,
                                                           LLVMRelocPIC, LLVMCodeModelDefault);
    dup2(kept, STDERR_FILENO);
    close(kept);
    bool known = machine && lseek(said, 0, SEEK_END) == 0;
    close(said);
    if (machine)
        LLVMDisposeTargetMachine(machine);
    return known;
}

ap_status ap_ll_machine(ap_ctx *ctx, const char *march, LLVMTargetMachineRef *out)
{
    LLVMTargetRef target;
    char *message = NULL, *triple, *cpu = NULL, *features = NULL;
    bool host = !march || !strcmp(march, "native");
    if (LLVMInitializeNativeTarget() || LLVMInitializeNativeAsmPrinter())
        return ap_fail(ctx, AP_ERR_ENV, 0, "LLVM has no code generator for this machine");
    triple = LLVMGetDefaultTargetTriple();
    if (LLVMGetTargetFromTriple(triple, &target, &message)) {
        LLVMDisposeMessage(triple);
        return ap_ll_fail(ctx, AP_ERR_ENV, "no target", message);
    }
    if (host) {
        cpu = LLVMGetHostCPUName();
        features = LLVMGetHostCPUFeatures();
    }
    ap_status status = AP_OK;
    if (!host && !is_known(target, triple, march))
        status = ap_fail(ctx, AP_ERR_USAGE, 0, "LLVM knows no processor \"%s\"", march);
    else
        *out = LLVMCreateTargetMachine(target, triple, host ? cpu : march, host ? features : "",
                                       LLVMCodeGenLevelAggressive, LLVMRelocPIC, LLVMCodeModelDefault);
    LLVMDisposeMessage(triple);
    LLVMDisposeMessage(cpu);
    LLVMDisposeMessage(features);
    return status;
}

/* That a loop does not become vector code is nobody's business but ours. */
static void hear_nothing(LLVMDiagnosticInfoRef info, void *user)
{
    (void)info;
    (void)user;
}

void ap_ll_begin(ap_ll *b, const ap_emit *e, const char *name, LLVMTargetMachineRef machine)
{
    ap_ll_init(b, e, name);
    LLVMContextSetDiagnosticHandler(b->context, hear_nothing, NULL);
    char *triple = LLVMGetTargetMachineTriple(machine), *features = LLVMGetTargetMachineFeatureString(machine);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
    LLVMSetTarget(b->module, triple);
    LLVMSetModuleDataLayout(b->module, layout);
    b->has_half = strstr(features, "+f16c") != NULL || strstr(triple, "aarch64") != NULL;
    LLVMDisposeTargetData(layout);
    LLVMDisposeMessage(triple);
    LLVMDisposeMessage(features);
}
