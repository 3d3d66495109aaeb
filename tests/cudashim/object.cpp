/* Objects that have been made and not destroyed, memory apart. */
#include <cstdlib>

#include "shim.h"

namespace shim
{

namespace
{
std::mutex guard;
std::map<const void *, ObjectKind> alive;
std::map<const void *, ObjectKind> gone; /* the last user of an address */
const char *const names[OBJECT_KINDS] = {
    "stream",    "event", "graph", "executable graph", "cuBLASLt handle", "cuDNN handle", "NCCL communicator",
    "descriptor"};
} // namespace

void object_add(const void *p, ObjectKind kind)
{
    hello();
    std::lock_guard<std::mutex> hold(guard);
    alive[p] = kind;
    gone.erase(p);
}

bool object_check(const void *p, ObjectKind kind, const char *call)
{
    bool destroyed;
    {
        std::lock_guard<std::mutex> hold(guard);
        auto it = alive.find(p);
        if (it != alive.end() && it->second == kind)
            return true;
        auto old = gone.find(p);
        destroyed = old != gone.end() && old->second == kind;
    }
    report("%s: %p is %s %s", call, p, destroyed ? "a destroyed" : "no", names[kind]);
    return false;
}

void object_remove(const void *p)
{
    std::lock_guard<std::mutex> hold(guard);
    auto it = alive.find(p);
    if (it != alive.end()) {
        gone[p] = it->second;
        alive.erase(it);
    }
}

long objects_alive()
{
    std::lock_guard<std::mutex> hold(guard);
    return (long)alive.size();
}

void object_leaks()
{
    unsigned count[OBJECT_KINDS] = {0};
    {
        std::lock_guard<std::mutex> hold(guard);
        for (auto &o : alive)
            count[o.second]++;
    }
    for (int k = 0; k < OBJECT_KINDS; k++)
        if (count[k])
            report("leak: %u of kind \"%s\" alive at exit", count[k], names[k]);
}

} // namespace shim
