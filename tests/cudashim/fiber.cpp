/* The switch: callee-saved registers go to the stack, the stack pointer changes, others come from there. */
#include "fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
extern "C" void *__tsan_create_fiber(unsigned flags);
extern "C" void __tsan_destroy_fiber(void *fiber);
extern "C" void *__tsan_get_current_fiber(void);
extern "C" void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

#if defined(__x86_64__) || defined(__aarch64__)
extern "C" void cudashim_switch(void **save, void *to);
#else
#include <ucontext.h>
#endif

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl cudashim_switch\n"
        ".type cudashim_switch, @function\n"
        "cudashim_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size cudashim_switch, .-cudashim_switch\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl cudashim_switch\n"
        ".type cudashim_switch, %function\n"
        "cudashim_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size cudashim_switch, .-cudashim_switch\n");
#endif

namespace shim
{

namespace
{
const size_t PAGE = 4096;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const size_t STACK = 256 << 10;
#else
const size_t STACK = 64 << 10;
#endif

void begin_stack(Fiber &f, void (*entry)())
{
    uintptr_t *top = (uintptr_t *)(f.stack + f.size);
#if defined(__x86_64__)
    *--top = 0; /* as if called: the stack is aligned but for the return address */
    *--top = (uintptr_t)entry;
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    f.sp = top;
#elif defined(__aarch64__)
    top -= 20;
    memset(top, 0, 20 * sizeof *top);
    top[11] = (uintptr_t)entry;
    f.sp = top;
#else
    (void)top;
    ucontext_t *c = new ucontext_t;
    getcontext(c);
    c->uc_stack.ss_sp = f.stack;
    c->uc_stack.ss_size = f.size;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
    f.sp = c;
#endif
}
} // namespace

void fiber_make(Fiber &f, void (*entry)())
{
    if (!f.stack) {
        char *p = (char *)mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (p == MAP_FAILED || mprotect(p, PAGE, PROT_NONE) != 0) {
            perror("cudashim: stacks");
            abort();
        }
        f.stack = p + PAGE;
        f.size = STACK;
#ifdef __SANITIZE_THREAD__
        f.tsan = __tsan_create_fiber(0);
#endif
    }
    begin_stack(f, entry);
}

void fiber_free(Fiber &f)
{
#ifdef __SANITIZE_THREAD__
    __tsan_destroy_fiber(f.tsan);
#endif
    munmap(f.stack - PAGE, f.size + PAGE);
    f = Fiber();
}

void fiber_adopt(Fiber &f)
{
    pthread_attr_t attr;
    void *low;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstack(&attr, &low, &f.size);
        f.stack = (char *)low;
        pthread_attr_destroy(&attr);
    }
#ifdef __SANITIZE_THREAD__
    f.tsan = __tsan_get_current_fiber();
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
    f.sp = new ucontext_t;
#endif
}

void fiber_switch(Fiber &from, Fiber &to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from.fake, to.stack, to.size);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(to.tsan, 0);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    cudashim_switch(&from.sp, to.sp);
#else
    swapcontext((ucontext_t *)from.sp, (ucontext_t *)to.sp);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}

void fiber_entered()
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

} // namespace shim
