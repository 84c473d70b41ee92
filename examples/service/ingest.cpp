// Samples of clients become files, one per round.

#include <cstdio>

#include "parts.hpp"

namespace {

troupe::fs::path path_of(const ingest_state& x, const char* ending) {
  char name[32];
  std::snprintf(name, sizeof name, "shard_%06llu.%s",
                static_cast<unsigned long long>(x.shard), ending);
  return x.folder / name;
}

/// Opens the file after the last full one. What an earlier service has begun
/// is continued; a sample that it has written in part is cut off.
void open_next(ingest_state& x) {
  while (troupe::fs::exists(path_of(x, "bin")))
    ++x.shard;
  auto path = path_of(x, "part");
  x.size = 0;
  if (troupe::fs::exists(path)) {
    x.size = troupe::fs::file_size(path) / sizeof(sample);
    troupe::fs::resize_file(path, x.size * sizeof(sample));
  }
  x.file.open(path, std::ios::binary | std::ios::app);
}

} // namespace

ingest_actor::behavior_type
ingest(ingest_actor::stateful_pointer<ingest_state> self,
       troupe::fs::path folder, std::uint64_t shard_size,
       trainer_actor trainer) {
  auto& state = self->state;
  state.folder = std::move(folder);
  state.shard_size = shard_size;
  state.trainer = std::move(trainer);
  open_next(state);
  return {
    [self](const add_samples& x) -> caf::result<samples_added> {
      auto& state = self->state;
      auto bytes = x.samples.size() * sizeof(sample);
      state.file.write(reinterpret_cast<const char*>(x.samples.data()),
                       static_cast<std::streamsize>(bytes));
      if (!state.file.flush())
        return troupe::to_caf(
          {troupe::ec::storage,
           path_of(state, "part").string() + " cannot be written"});
      state.size += x.samples.size();
      state.total += x.samples.size();
      if (state.size >= state.shard_size) {
        auto full = path_of(state, "bin");
        state.file.close();
        troupe::fs::rename(path_of(state, "part"), full);
        self->send(state.trainer, shard_ready{full.string()});
        open_next(state);
      }
      return samples_added{state.total};
    },
  };
}
