// SPDX-License-Identifier: Apache-2.0
// Replaces operator new for tests that allocate millions of small objects, such as JSON trees. Freed blocks go to a
// free list per size and thread.
#include <cstddef>
#include <cstdlib>
#include <new>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

constexpr size_t step = 16, sorts = 33, at_once = 64;  // up to 512 bytes; larger blocks come from malloc

struct Block {
  Block* next;
};
thread_local Block* kept[sorts];

/// The header in front of each block.
struct alignas(step) Head {
  size_t sort;  ///< size class; 0: from malloc
};

void* with_head(void* place, size_t sort) {
  if (!place) throw std::bad_alloc();
  new (place) Head{sort};
  return static_cast<char*>(place) + sizeof(Head);
}

void* take(size_t size) {
  const size_t sort = (size + step - 1) / step;
  if (sort == 0 || sort >= sorts) return with_head(std::malloc(sizeof(Head) + size), 0);
  if (!kept[sort]) {
    const size_t each = sizeof(Head) + sort * step;
    char* many = static_cast<char*>(std::malloc(each * at_once));
    if (!many) throw std::bad_alloc();
    for (size_t i = 0; i < at_once; ++i) kept[sort] = new (many + i * each) Block{kept[sort]};
  }
  Block* block = kept[sort];
  kept[sort] = block->next;
  return with_head(block, sort);
}

void give_back(void* object) {
  if (!object) return;
  char* place = static_cast<char*>(object) - sizeof(Head);
  const size_t sort = reinterpret_cast<Head*>(place)->sort;
  if (sort == 0) return std::free(place);
  kept[sort] = new (place) Block{kept[sort]};
}

}  // namespace

void* operator new(size_t size) { return take(size); }
void* operator new[](size_t size) { return take(size); }
void operator delete(void* object) noexcept { give_back(object); }
void operator delete[](void* object) noexcept { give_back(object); }
void operator delete(void* object, size_t) noexcept { give_back(object); }
void operator delete[](void* object, size_t) noexcept { give_back(object); }

#endif
