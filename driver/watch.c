/* See the header. */
#include "driver/watch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct ap_watch {
    atomic_int flag;
    atomic_int over;
    double start, limit;
    sigset_t signals;
    pthread_t thread;
    bool started;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die_by(int sig)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, sig);
    signal(sig, SIG_DFL);
    kill(getpid(), sig);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL); /* it arrives here */
    _exit(128 + sig);
}

static void *watch(void *arg)
{
    ap_watch *w = arg;
    bool asked = false;
    while (!atomic_load(&w->over)) {
        double left = w->limit > 0 && !w->flag ? w->limit - (now() - w->start) : 3600;
        left = left < 0 ? 0 : left > 3600 ? 3600 : left;
        struct timespec t = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        int sig = sigtimedwait(&w->signals, NULL, &t);
        if (atomic_load(&w->over))
            break;
        if (sig > 0 && asked)
            die_by(sig);
        asked = asked || sig > 0;
        if (sig > 0 || (w->limit > 0 && now() - w->start >= w->limit))
            w->flag = 1;
    }
    return NULL;
}

static void end_watch(void *user)
{
    ap_watch *w = user;
    if (!w->started)
        return;
    atomic_store(&w->over, 1);
    pthread_kill(w->thread, SIGINT); /* taken by its sigtimedwait */
    pthread_join(w->thread, NULL);
}

ap_status ap_watch_start(ap_ctx *ctx, double seconds, ap_watch **out)
{
    ap_watch *w = AP_NEW(&ctx->arena, ap_watch);
    w->start = now();
    w->limit = seconds;
    ap_ctx_on_release(ctx, end_watch, w);
    sigemptyset(&w->signals);
    sigaddset(&w->signals, SIGINT);
    sigaddset(&w->signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &w->signals, NULL);
    int e = pthread_create(&w->thread, NULL, watch, w);
    if (e)
        return ap_fail(ctx, AP_ERR_ENV, 0, "cannot start a thread: %s", strerror(e));
    w->started = true;
    *out = w;
    return AP_OK;
}

const atomic_int *ap_watch_flag(const ap_watch *w)
{
    return &w->flag;
}

double ap_watch_seconds(const ap_watch *w)
{
    return now() - w->start;
}
