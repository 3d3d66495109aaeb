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
#include <time.h>
#include <unistd.h>

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

bool aprt_gate_wait(aprt_gate *g, uint32_t old, int spins, aprt_tick *tick, double tick_seconds, void *user)
{
    for (int i = 0; i < spins; i++) {
        if (atomic_load(&g->word) != old)
            return true;
        pause_briefly();
    }
    const struct timespec some = {(time_t)tick_seconds, (long)(1e9 * (tick_seconds - floor(tick_seconds)))};
    bool goes_on = true;
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->word) == old && (goes_on = !tick || tick(user)))
        syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, old, tick ? &some : NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
    return goes_on;
}

void aprt_gate_open(aprt_gate *g)
{
    atomic_fetch_add(&g->word, 1);
    if (atomic_load(&g->sleepers)) /* who comes later finds the word changed, the kernel checks it too */
        syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

bool aprt_barrier_wait(aprt_barrier *b, const _Atomic uint32_t *aborted, int spins, aprt_tick *tick,
                       double tick_seconds, void *user)
{
    uint32_t epoch = atomic_load(&b->epoch.word);
    if (atomic_load(aborted))
        return false;
    if (atomic_fetch_add(&b->arrived, 1) + 1 == b->size) {
        atomic_store(&b->arrived, 0);
        aprt_gate_open(&b->epoch);
        return true;
    }
    return aprt_gate_wait(&b->epoch, epoch, spins, tick, tick_seconds, user) && !atomic_load(aborted);
}

void aprt_barrier_release(aprt_barrier *b)
{
    aprt_gate_open(&b->epoch);
}

void aprt_barrier_reset(aprt_barrier *b)
{
    atomic_store(&b->arrived, 0);
}
