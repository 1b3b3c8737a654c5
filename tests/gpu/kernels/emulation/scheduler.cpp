// SPDX-License-Identifier: Apache-2.0
// The scheduler of the emulation. It is compiled without ThreadSanitizer, so that its own data establishes no order
// between fibers.
#include "tests/gpu/kernels/emulation/emulation.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/gpu/kernels/emulation/fiber.h"

namespace pm::emulation {

Thread* running = nullptr;
thread_local std::function<void(std::function<void()>)> on_launch;
int resident_blocks = 2;

namespace {

constexpr unsigned together = 3;  // blocks that run concurrently
constexpr size_t slot_bytes = 64;

enum class State { Ready, AtBlockBarrier, AtWarp, Done };

struct Block;

/// Shared memory of one block, 0xFF at first. It comes from the heap, so that AddressSanitizer checks its bounds.
/// ThreadSanitizer regards allocations and memset as writes; for it the memory comes directly from the system and is
/// filled by code that is not instrumented.
class SharedMemory {
 public:
  SharedMemory() = default;
  explicit SharedMemory(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
#if defined(PM_WITH_TSAN)
    const long mapped = syscall(SYS_mmap, nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                0);  // mmap() counts as writing too
    if (mapped == -1) throw std::bad_alloc();
    memory_ = reinterpret_cast<char*>(mapped);
#else
    memory_ = static_cast<char*>(::operator new[](bytes_, std::align_val_t(128)));
#endif
    for (size_t i = 0; i < bytes_; ++i) static_cast<volatile char*>(memory_)[i] = static_cast<char>(0xFF);
  }
  SharedMemory(SharedMemory&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory() {
    if (!memory_) return;
#if defined(PM_WITH_TSAN)
    munmap(memory_, bytes_);
#else
    ::operator delete[](memory_, std::align_val_t(128));
#endif
  }
  char* get() const { return memory_; }

 private:
  char* memory_ = nullptr;
  size_t bytes_ = 0;
};

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  bool real;
};

struct Member {
  Thread thread{};
  Fiber fiber;
  State state = State::Done;
  Block* block = nullptr;
  int number = 0, line = 0;
  std::vector<Copy> copies;  ///< of the group that is open
  std::deque<std::vector<Copy>> groups;
};

/// The lanes of one warp that have reached an operation, and their data; two sets of slots alternate, because one may
/// still be read.
struct Warp {
  unsigned mask = 0, come = 0;
  int line = 0, turn = 0;
  char slots[2][32 * slot_bytes];
  char order[2];
};

struct Block {
  std::vector<Warp> warps;
  std::vector<Member*> members;
  std::map<std::tuple<const void*, int, size_t>, SharedMemory> shared;
  SharedMemory dynamic;
  int waiting = 0, line = 0, turn = 0, done = 0;
  char order[2];
};

std::mt19937_64 randomness{1};
std::vector<std::unique_ptr<Member>> pool;
std::vector<Member*> ready;
const std::function<void()>* body = nullptr;
Member* current = nullptr;
Fiber scheduler;
std::string trouble;
bool counts_atomics = false;
std::unordered_map<const void*, size_t> atomics;
char launched, landed;

Member& self() { return *current; }

void to_scheduler() {
  Member& member = self();
  switch_fiber(member.fiber, scheduler);
  current = &member;
  running = &member.thread;
}

[[noreturn]] void run_bodies() {
  arrived_on_fiber();
  for (;;) {
    acquire_order(&launched);
    (*body)();
    release_order(&landed);
    Member& member = self();
    member.state = State::Done;
    ++member.block->done;
    if (!member.copies.empty() || !member.groups.empty()) member.copies.clear(), member.groups.clear();
    to_scheduler();
  }
}

Member& member_of_pool(size_t i) {
  while (pool.size() <= i) {
    pool.push_back(std::make_unique<Member>());
    make_fiber(pool.back()->fiber, &run_bodies);
  }
  return *pool[i];
}

std::string whose(const Member& member) {
  return "thread " + std::to_string(member.number) + " of block (" + std::to_string(member.thread.block.x) + ", " +
         std::to_string(member.thread.block.y) + ", " + std::to_string(member.thread.block.z) + ")";
}

void complain(const std::string& what) {
  if (trouble.empty()) trouble = what;
  release_order(&landed);  // what the text took from the heap is the scheduler's now
}

void start_block(Block& block, unsigned place, dim3 grid, dim3 size, unsigned number, size_t dynamic_bytes) {
  const unsigned threads = size.x * size.y * size.z;
  block.warps.resize((threads + 31) / 32);
  block.dynamic = SharedMemory(dynamic_bytes);
  for (unsigned i = 0; i < threads; ++i) {
    Member& member = member_of_pool(place * threads + i);
    member.thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    member.thread.block = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    member.thread.block_size = size;
    member.thread.grid = grid;
    member.thread.lane = static_cast<int>(i % 32);
    member.state = State::Ready;
    member.block = &block;
    member.number = static_cast<int>(i);
    block.members.push_back(&member);
    ready.push_back(&member);
  }
}

void wake(State from, Block& block, unsigned first, unsigned count) {
  for (unsigned i = first; i < std::min<size_t>(first + count, block.members.size()); ++i) {
    if (block.members[i]->state != from) continue;
    block.members[i]->state = State::Ready;
    ready.push_back(block.members[i]);
  }
}

void wait_as(State state) {
  self().state = state;
  to_scheduler();
}

}  // namespace

void seed(uint64_t value) { randomness.seed(value); }

void count_atomics() {
  atomics.clear();
  counts_atomics = true;
}
size_t most_atomics() {
  counts_atomics = false;
  size_t most = 0;
  for (const auto& [address, count] : atomics) most = std::max(most, count);
  return most;
}
void note_atomic(const void* address) {
  if (counts_atomics) ++atomics[address];
}

void block_barrier(int line) {
  Member& member = self();
  Block& block = *member.block;
  if (block.waiting > 0 && block.line != line) {
    complain(whose(member) + " came to the barrier of line " + std::to_string(line) +
             " while others wait at that of line " + std::to_string(block.line));
  }
  block.line = line;
  member.line = line;
  char* order = &block.order[block.turn];
  release_order(order);
  if (++block.waiting == static_cast<int>(block.members.size())) {
    block.waiting = 0;
    block.turn ^= 1;
    wake(State::AtBlockBarrier, block, 0, static_cast<unsigned>(block.members.size()));
    member.state = State::Ready;
    ready.push_back(&member);
    to_scheduler();
  } else {
    wait_as(State::AtBlockBarrier);
  }
  acquire_order(order);
}

const char* exchange(unsigned mask, const void* mine, size_t bytes, int line) {
  Member& member = self();
  Block& block = *member.block;
  Warp& warp = block.warps[static_cast<size_t>(member.number / 32)];
  const unsigned me = 1u << member.thread.lane;
  if (warp.come == 0) warp.mask = mask, warp.line = line;
  if (!(mask & me)) complain(whose(member) + " is not in the mask that it gives in line " + std::to_string(line));
  if (warp.mask != mask || warp.line != line) {
    complain(whose(member) + " came to line " + std::to_string(line) + " while lanes of its warp wait in line " +
             std::to_string(warp.line));
  }
  const int turn = warp.turn;
  volatile char* slot = warp.slots[turn] + static_cast<size_t>(member.thread.lane) * slot_bytes;
  for (size_t i = 0; i < bytes; ++i)
    slot[i] = static_cast<const char*>(mine)[i];  // not memcpy, which ThreadSanitizer would see
  warp.come |= me;
  member.line = line;
  if (warp.come == mask) {
    warp.come = 0;
    warp.turn ^= 1;
    wake(State::AtWarp, block, static_cast<unsigned>(member.number / 32 * 32), 32);
    member.state = State::Ready;
    ready.push_back(&member);
    to_scheduler();
  } else {
    wait_as(State::AtWarp);
  }
  return warp.slots[turn];
}

void warp_barrier(unsigned mask, int line) {
  Warp& warp = self().block->warps[static_cast<size_t>(self().number / 32)];
  char* order = &warp.order[warp.turn];
  release_order(order);
  exchange(mask, nullptr, 0, line);
  acquire_order(order);
}

void* shared_memory(const char* file, int line, size_t bytes) {
  SharedMemory& memory = self().block->shared[{file, line, bytes}];
  if (!memory.get()) memory = SharedMemory(bytes);
  return memory.get();
}

void* dynamic_shared_memory() { return self().block->dynamic.get(); }

// Functions of the code under test, instrumented.
void spoil(void* to, size_t bytes);
void perform_copy(void* to, const void* from, size_t bytes, bool real);

void copy_later(void* to, const void* from, size_t bytes, bool real) {
  spoil(to, bytes);
  self().copies.push_back({to, from, bytes, real});
}

void commit_copies() {
  self().groups.push_back(std::move(self().copies));
  self().copies.clear();
}

void wait_for_copies(int groups_left) {
  auto& groups = self().groups;
  while (static_cast<int>(groups.size()) > groups_left) {
    for (const Copy& copy : groups.front()) perform_copy(copy.to, copy.from, copy.bytes, copy.real);
    groups.pop_front();
  }
}

void launch(dim3 grid, dim3 size, size_t dynamic_bytes, const std::function<void()>& given) {
  body = &given;
  trouble.clear();
  ready.clear();
  ready.reserve(together * size.x * size.y * size.z);
  std::vector<unsigned> numbers(grid.x * grid.y * grid.z);
  for (unsigned i = 0; i < numbers.size(); ++i) numbers[i] = i;
  std::shuffle(numbers.begin(), numbers.end(), randomness);
  for (size_t begin = 0; begin < numbers.size() && trouble.empty(); begin += together) {
    std::vector<Block> blocks(std::min<size_t>(together, numbers.size() - begin));
    for (unsigned i = 0; i < blocks.size(); ++i)
      start_block(blocks[i], i, grid, size, numbers[begin + i], dynamic_bytes);
    release_order(&launched);
    while (!ready.empty() && trouble.empty()) {
      const size_t next = randomness() % ready.size();
      current = ready[next];
      ready[next] = ready.back();
      ready.pop_back();
      running = &current->thread;
      switch_fiber(scheduler, current->fiber);
    }
    acquire_order(&landed);
    for (const Block& block : blocks) {
      if (block.done == static_cast<int>(block.members.size()) || !trouble.empty()) continue;
      const auto stuck = std::find_if(block.members.begin(), block.members.end(),
                                      [](const Member* member) { return member->state != State::Done; });
      complain(whose(**stuck) + " waits in line " + std::to_string((*stuck)->line) + " for ever; " +
               std::to_string(block.done) + " threads of its block have ended");
    }
  }
  body = nullptr;
  if (!trouble.empty()) {
    static auto& abandoned =
        *new std::vector<std::unique_ptr<Member>>;  // never freed: their threads are not ordered before this one, which
                                                    // may not free what they used
    for (auto& member : pool) {
      abandon_fiber(member->fiber);
      abandoned.push_back(std::move(member));
    }
    pool.clear();
    throw std::runtime_error(trouble);
  }
}

}  // namespace pm::emulation
