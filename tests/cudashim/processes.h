/* processes.h - ranks of a communicator that are processes of their own: they find each other in a folder that all of
 * them see, and what one has to tell another is a file there, which is gone when it has been read. */
#ifndef CUDASHIM_PROCESSES_H
#define CUDASHIM_PROCESSES_H

#include <atomic>
#include <string>
#include <vector>

#include "collective.h"

namespace shim
{

/* What goes along with the bytes of a call. */
struct Letter {
    int kind, type, op, peer;
    size_t count;
};

struct Folder {
    std::string path;
    int size, rank;
    double looked = 0; /* when its ranks were looked after last */
    bool lost = false;
};

/* Where CUDASHIM_PROCESSES says; "" when it does not: ranks are threads. */
std::string folder_make();
void folder_join(const Folder &f, int device);
/* How many ranks have come; reports two on one device. */
int folder_arrived(const Folder &f);
/* A rank has given up, or its process has ended without a word. */
bool folder_lost(Folder &f);
void folder_say_gone(const Folder &f);
/* The last one tidies up. */
void folder_leave(const Folder &f, bool orderly);

/* One file for each reader, its name of the kind of message, its number, who wrote it and who reads it. */
void folder_post(const Folder &f, char kind, uint64_t number, const std::vector<int> &readers, const Letter &letter,
                 const void *bytes, size_t size);
bool folder_has(const Folder &f, char kind, uint64_t number, int from);
void folder_take(const Folder &f, char kind, uint64_t number, int from, Letter *letter, std::vector<char> *bytes);

} // namespace shim

#endif
