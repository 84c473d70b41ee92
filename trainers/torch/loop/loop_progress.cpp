#include "troupe/trainers/torch/loop/loop_progress.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

#include <ATen/Context.h>

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_fields.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/files/safetensors.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

std::vector<at::Device> devices_of(at::Device device) {
  if (device.is_cpu())
    return {device};
  return {at::Device{at::kCPU}, device};
}

std::string name_of(at::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

} // namespace

tensor_map random_state(at::Device device) {
  tensor_map result;
  for (auto x : devices_of(device)) {
    auto generator = at::globalContext().defaultGenerator(x);
    std::lock_guard guard{generator.mutex()};
    result[name_of(x)] = generator.get_state();
  }
  return result;
}

void set_random_state(const tensor_map& saved, at::Device device) {
  for (auto x : devices_of(device)) {
    auto i = saved.find(name_of(x));
    if (i == saved.end())
      continue;
    auto generator = at::globalContext().defaultGenerator(x);
    std::lock_guard guard{generator.mutex()};
    generator.set_state(i->second.clone());
  }
}

namespace json {

template <class Fields>
void fields_of(Fields& f, loop_progress& x) {
  f.format(1).added("loop", x.loop).added("failed", x.failed);
  f("finished_epochs", x.finished_epochs);
  f("global_step", x.global_step)("stopping", x.stopping);
  f.added("first_lr", x.first_lr).added("own_lr", x.own_lr);
  f("added", x.added.values)("callbacks", x.callbacks);
}

} // namespace json

namespace {

constexpr std::size_t max_bytes = 64 * 1024 * 1024;
const std::string optimizer_prefix = "optimizer.";
/// Before the names of an optimizer that begin otherwise.
const std::string own_name_prefix = "optimizer_own.";
const std::string added_prefix = "added.";
const std::string model_prefix = "model.";

fs::path text_file(const fs::path& folder) {
  return folder / "loop.json";
}

fs::path tensor_file(const fs::path& folder) {
  return folder / "loop.safetensors";
}

fs::path rank_file(const fs::path& folder, int rank) {
  return folder / concat("rank_", rank, ".safetensors");
}

bool is_there(const fs::path& path) {
  return value_or_throw(look_up(path)).exists();
}

/// What the text file says.
std::optional<loop_progress> read_text(const fs::path& folder) {
  auto path = text_file(folder);
  if (!is_there(path))
    return std::nullopt;
  return value_or_throw(
    read_file(path, max_bytes).and_then([&](std::string text) {
      return json::read<loop_progress>(text, path.string(),
                                       json::from_fields<loop_progress>);
    }));
}

/// Whether fit number *loop*, before which *failed* threw, or a later one of
/// the same course of the train function has saved *x*. A fit that had failed
/// by then is not over: what came after it took its place.
bool is_of_same_course(const loop_progress& x, int loop,
                       const std::vector<int>& failed) {
  auto later = std::ranges::upper_bound(x.failed, loop);
  return x.loop >= loop
         && std::equal(x.failed.begin(), later, failed.begin(), failed.end());
}

/// Warns of a first fit that begins, although an earlier attempt has saved
/// *last*.
void warn_of_another_kind(const checkpoint& last, train_context& context) {
  rank_access own{context};
  if (own.facts().first_report == 0)
    return;
  own.log({warning_kind,
           {{"text", concat(last.name(),
                            " was not saved by an epoch_loop, and no other "
                            "checkpoint was: the loop trains from the "
                            "beginning")}}});
}

/// Finds what `find_resume_point` returns in a run whose last checkpoint is
/// *last*.
resume_point newest_of(int loop, const std::vector<int>& failed,
                       const checkpoint& last, train_context& context) {
  auto newest = read_text(last.path());
  if (newest && newest->loop == loop
      && is_of_same_course(*newest, loop, failed))
    return {last.path().string(), false};
  resume_point result;
  auto has_trained = newest.has_value();
  auto all = context.all_reported_checkpoints();
  for (auto x = all.rbegin(); x != all.rend(); ++x) {
    auto found = read_text(x->data.path());
    has_trained = has_trained || found;
    if (!found || !is_of_same_course(*found, loop, failed))
      continue;
    if (found->loop == loop) {
      result.folder = x->data.path().string();
      break;
    }
    result.is_over = true;
  }
  if (loop == 0 && !has_trained)
    warn_of_another_kind(last, context);
  return result;
}

/// Adds the *state* of an optimizer to the tensors of a file. An optimizer may
/// choose any names: none is taken for those of something else.
void add_optimizer(tensor_map& file, const tensor_map& state) {
  for (auto& [name, value] : state)
    file[name.starts_with(optimizer_prefix) ? name : own_name_prefix + name] =
      value;
}

/// The inverse for one tensor of a file; false if it is of something else.
bool take_optimizer(tensor_map& state, const std::string& name,
                    const at::Tensor& value) {
  if (name.starts_with(optimizer_prefix))
    state[name] = value;
  else if (name.starts_with(own_name_prefix))
    state[name.substr(own_name_prefix.size())] = value;
  else
    return false;
  return true;
}

} // namespace

void write_progress(const fs::path& folder, const loop_progress& x) {
  auto path = text_file(folder);
  auto text = json::open_object(x) + "}\n";
  value_or_throw(check_size(path, text, max_bytes).and_then([&] {
    return write_new_file(path, text);
  }));
  tensor_map tensors;
  add_optimizer(tensors, x.optimizer);
  for (auto& [name, value] : x.added.tensors)
    tensors[added_prefix + name] = value;
  save_safetensors(tensor_file(folder), tensors);
}

std::optional<loop_progress> read_progress(const fs::path& folder) {
  auto result = read_text(folder);
  if (!result)
    return std::nullopt;
  for (auto& [name, value] : load_safetensors(tensor_file(folder))) {
    if (take_optimizer(result->optimizer, name, value))
      continue;
    if (name.starts_with(added_prefix))
      result->added.tensors[name.substr(added_prefix.size())] = value;
    else // of an optimizer, written by a version without the second prefix
      result->optimizer[name] = value;
  }
  return result;
}

resume_point find_resume_point(train_context& context, int loop,
                               const std::vector<int>& failed) {
  resume_point result;
  if (context.rank() == 0 && context.checkpoint())
    result = newest_of(loop, failed, *context.checkpoint(), context);
  return context.broadcast_from_rank_zero(result);
}

void write_rank_progress(const fs::path& folder, int rank,
                         const rank_progress& x) {
  std::string logged;
  json::append(logged, x.logged);
  tensor_map tensors = x.random;
  add_optimizer(tensors, x.optimizer);
  for (auto& [name, value] : x.model)
    tensors[model_prefix + name] = value;
  save_safetensors(rank_file(folder, rank), tensors, {{"logged", logged}});
}

rank_progress read_rank_progress(const fs::path& folder, int rank) {
  rank_progress result;
  auto path = rank_file(folder, rank);
  if (is_there(path)) {
    for (auto& [name, value] : load_safetensors(path)) {
      if (name.starts_with(model_prefix))
        result.model[name.substr(model_prefix.size())] = value;
      else if (!take_optimizer(result.optimizer, name, value))
        result.random[name] = value;
    }
  } else {
    path = rank_file(folder, 0);
  }
  result.logged = value_or_throw(
    json::read<metrics>(load_safetensors_metadata(path)["logged"],
                        path.string(), json::to_metrics));
  return result;
}

} // namespace troupe::internal
