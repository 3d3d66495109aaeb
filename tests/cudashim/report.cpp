/* What is wrong, and how it is said. */
#include <csignal>
#include <cstdlib>
#include <unistd.h>

#include "shim.h"

namespace shim
{

thread_local Where where = {nullptr, 0, 0};

namespace
{
std::mutex guard;
bool count_only;
unsigned reports;
std::string last;
} // namespace

bool counting()
{
    std::lock_guard<std::mutex> hold(guard);
    return count_only;
}

void report(const char *format, ...)
{
    char text[2048], place[512] = "";
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (where.op)
        snprintf(place, sizeof place, "%s (device %d, stream %u)%s%s: ", where.op, where.device, where.stream,
                 in_kernel() ? ", " : "", in_kernel() ? kernel_place().c_str() : "");
    std::lock_guard<std::mutex> hold(guard);
    last = std::string(place) + text;
    reports++;
    if (count_only)
        return;
    fprintf(stderr, "cudashim: %s\n", last.c_str());
    fflush(stderr);
    signal(SIGABRT, SIG_DFL);
    abort();
}

void hello()
{
    static std::once_flag once;
    std::call_once(once, [] {
        const char *quiet = getenv("CUDASHIM_QUIET"), *seed = getenv("CUDASHIM_SEED");
        if (seed)
            machine().seed = strtoull(seed, nullptr, 0);
        if (!quiet || strcmp(quiet, "1") != 0)
            fprintf(stderr, "cudashim: TEST SHIM: kernels run on the CPU, nothing here is a GPU (seed %llu)\n",
                    (unsigned long long)machine().seed);
        on_exit(
            [](int status, void *) {
                if (status != 0)
                    return; /* a program that has failed need not have tidied up */
                object_leaks();
                memory_leaks();
            },
            nullptr);
    });
}

} // namespace shim

void cudashim_count_reports(int yes)
{
    std::lock_guard<std::mutex> hold(shim::guard);
    shim::count_only = yes != 0;
}

unsigned cudashim_reports(void)
{
    std::lock_guard<std::mutex> hold(shim::guard);
    return shim::reports;
}

const char *cudashim_last_report(void)
{
    std::lock_guard<std::mutex> hold(shim::guard);
    static thread_local std::string copy;
    copy = shim::last;
    return copy.c_str();
}

void cudashim_seed(unsigned long long seed)
{
    shim::hello();
    shim::Lock lock(shim::machine().lock);
    shim::machine().seed = seed;
    shim::machine().draw = 0;
}

long cudashim_live(void)
{
    return shim::objects_alive();
}
