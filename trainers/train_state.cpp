#include "troupe/trainers/train_state.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <ranges>
#include <stdexcept>

#include "troupe/runtime/path_component.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Calls *f* for the object in *path*; what it throws names the file.
template <class F>
auto named(const fs::path& path, F f) {
  auto fail = [&](ec code, const std::string& text) {
    throw train_error{{code, text.find(path.string()) == text.npos
                               ? path.string() + ": " + text
                               : text}};
  };
  try {
    return f();
  } catch (const train_error& x) {
    fail(x.reason().code, x.reason().message);
  } catch (const std::exception& x) {
    fail(ec::corrupt, x.what());
  }
  return decltype(f())();
}

/// What was saved in *folder* instead of the object *name*, for a sentence.
std::string missing_text(const std::string& name, const fs::path& folder) {
  constexpr std::size_t most = 12;
  auto files = files_below(folder);
  if (!files || files->empty())
    return "nothing was saved there";
  auto name_of = [&](const fs::path& x) {
    return x.lexically_relative(folder).generic_string();
  };
  return concat("no '", name, "' of this type was saved there, but ",
                joined(*files | std::views::take(most), ", ", name_of),
                files->size() > most ? ", ..." : "");
}

/// The rank of the train loop on this thread, if it has others beside it.
std::optional<int> rank_among_others() {
  try {
    auto& x = context();
    if (x.world_size() > 1)
      return x.rank();
  } catch (const std::logic_error&) { // no train loop
  }
  return std::nullopt;
}

} // namespace

void internal::check_object_name(const std::string& name) {
  if (name.starts_with('.') || !is_path_component(name))
    throw train_error{{ec::invalid_argument,
                       "an object cannot be saved as '" + name
                         + "': its name is that of a file, without '/' and "
                           "control characters, does not begin with '.' and "
                           "has at most 200 bytes"}};
}

void internal::restore(const std::vector<saved_object>& objects,
                       const fs::path& folder) {
  for (auto& x : objects)
    if (!value_or_throw(look_up(folder / x.file)).exists())
      throw train_error{
        {ec::invalid_argument, (folder / x.file).string() + " does not exist: "
                                 + missing_text(x.name, folder)}};
  struct step : restore_step {
    fs::path path;
  };
  std::vector<step> steps;
  for (auto& x : objects) {
    auto path = folder / x.file;
    steps.push_back({named(path, [&] { return x.read(path); }), path});
  }
  // First what may still be refused.
  std::ranges::stable_partition(steps, [](auto& x) { return bool{x.undo}; });
  for (auto i = steps.begin(); i != steps.end(); ++i) {
    try {
      named(i->path, i->apply);
    } catch (...) {
      // The one that failed, too: it may have changed in part.
      for (auto j = i + 1; j != steps.begin();)
        if ((--j)->undo)
          try {
            j->undo();
          } catch (const std::exception&) { // the first reason is the cause
          }
      throw;
    }
  }
}

train_state::train_state(std::initializer_list<object> objects) {
  for (auto& x : objects)
    add(x);
}

void train_state::add(object x) {
  if (std::ranges::find(objects_, x.value_.name, &saved_object::name)
      != objects_.end())
    throw train_error{{ec::invalid_argument, "a train_state has two objects '"
                                               + x.value_.name + "'"}};
  objects_.push_back(std::move(x.value_));
}

void train_state::check_shared() const {
  auto rank = rank_among_others();
  for (auto& x : objects_)
    if (rank && x.reset && x.has_own_samples())
      throw train_error{
        {ec::invalid_argument,
         concat("'", x.name, "' has samples of rank ", *rank,
                " alone, but all ranks would load what rank 0 saves: reset it "
                "before the report, or let each rank save its own (files.save "
                "of a staged_checkpoint)")}};
}

void train_state::save(staged_checkpoint& files) const {
  check_shared();
  for (auto& x : objects_) {
    auto path = files.path() / x.file;
    named(path, [&] { x.save(path); });
  }
}

void train_state::load(const checkpoint& from) const {
  restore(objects_, from.path());
  // What one rank has seen counts once.
  if (rank_among_others().value_or(0) > 0)
    for (auto& x : objects_)
      if (x.reset)
        x.reset();
}

} // namespace troupe
