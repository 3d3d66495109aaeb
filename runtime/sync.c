/* SPDX-License-Identifier: MIT
 *
 * Waiting. A thread first spins, because devices of one machine arrive within microseconds of each other, and then
 * sleeps in the kernel. A barrier can be abandoned: when a device fails, the others are let out of every barrier.
 *
 * Why nobody is left behind: a waiter reads the epoch, then checks `aborted`, then arrives; whoever aborts sets
 * `aborted`, then moves the epoch on. All of it is sequentially consistent, so a waiter that still saw no abort sees
 * the epoch change afterwards. */
#include "internal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

void aprt_gate_wait(aprt_gate *g, uint32_t old, int spins)
{
    for (int i = 0; i < spins; i++) {
        if (atomic_load(&g->word) != old)
            return;
        pause_briefly();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->word) == old)
        syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

void aprt_gate_open(aprt_gate *g)
{
    atomic_fetch_add(&g->word, 1);
    if (atomic_load(&g->sleepers)) /* who comes later finds the word changed, the kernel checks it too */
        syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

bool aprt_barrier_wait(aprt_barrier *b, const _Atomic uint32_t *aborted, int spins)
{
    uint32_t epoch = atomic_load(&b->epoch.word);
    if (atomic_load(aborted))
        return false;
    if (atomic_fetch_add(&b->arrived, 1) + 1 == b->size) {
        atomic_store(&b->arrived, 0);
        aprt_gate_open(&b->epoch);
        return true;
    }
    aprt_gate_wait(&b->epoch, epoch, spins);
    return !atomic_load(aborted);
}

void aprt_barrier_release(aprt_barrier *b)
{
    aprt_gate_open(&b->epoch);
}

void aprt_barrier_reset(aprt_barrier *b)
{
    atomic_store(&b->arrived, 0);
}
