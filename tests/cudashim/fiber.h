/* fiber.h - stacks and the switch between them. A fiber belongs to the host thread that made it. */
#ifndef CUDASHIM_FIBER_H
#define CUDASHIM_FIBER_H

#include <cstddef>

namespace shim
{

struct Fiber {
    void *sp = nullptr;
    char *stack = nullptr; /* its lowest byte; below it is a page without access */
    size_t size = 0;
    void *fake = nullptr; /* AddressSanitizer's */
    void *tsan = nullptr; /* ThreadSanitizer's */
};

/* Runs `entry` when it is switched to for the first time; entry never returns. */
void fiber_make(Fiber &f, void (*entry)());
void fiber_free(Fiber &f);
/* For the stack of the host thread itself: where it is, before anything switches back to it. */
void fiber_adopt(Fiber &f);
void fiber_switch(Fiber &from, Fiber &to);
/* First thing that `entry` does. */
void fiber_entered();

} // namespace shim

#endif
