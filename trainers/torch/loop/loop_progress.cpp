#include "troupe/trainers/torch/loop/loop_progress.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include <ATen/Context.h>

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
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

namespace {

constexpr int known_format = 1;
constexpr std::size_t max_bytes = 64 * 1024 * 1024;
const std::string optimizer_prefix = "optimizer.";
const std::string added_prefix = "added.";
const std::string model_prefix = "model.";

fs::path text_file(const fs::path& folder) {
  return folder / "loop.json";
}

fs::path tensor_file(const fs::path& folder) {
  return folder / "loop.safetensors";
}

fs::path rank_file(const fs::path& folder, int rank) {
  return folder / (concat("rank_", rank, ".safetensors"));
}

void append(std::string& out, const std::vector<double>& numbers) {
  out += '[';
  for (auto separator = ""; auto x : numbers) {
    out += std::exchange(separator, ",");
    json::append(out, metric_value{x});
  }
  out += ']';
}

std::string to_json(const loop_progress& x) {
  std::string out = concat("{\"format\":", known_format,
                           ",\n\"finished_epochs\":", x.finished_epochs,
                           ",\n\"global_step\":", x.global_step,
                           ",\n\"stopping\":", (x.stopping ? "true" : "false"));
  out += ",\n\"first_lr\":";
  append(out, x.first_lr);
  if (!x.own_lr.empty()) {
    out += ",\n\"own_lr\":";
    append(out, x.own_lr);
  }
  out += ",\n\"added\":";
  json::append(out, x.added.values);
  out += ",\n\"callbacks\":{";
  auto separator = "";
  for (auto& [key, state] : x.callbacks) {
    out += separator;
    json::append(out, std::string_view{key});
    out += ':';
    json::append(out, state);
    separator = ",\n";
  }
  out += "}}\n";
  return out;
}

loop_progress from_json(const json::document& x) {
  json::check_format(x, known_format);
  loop_progress result;
  result.finished_epochs =
    static_cast<int>(json::to_unsigned(json::field(x, "finished_epochs")));
  result.global_step =
    static_cast<std::int64_t>(json::to_unsigned(json::field(x, "global_step")));
  result.stopping = json::field(x, "stopping").get<bool>();
  if (x.contains("first_lr"))
    result.first_lr = x.at("first_lr").get<std::vector<double>>();
  if (x.contains("own_lr"))
    result.own_lr = x.at("own_lr").get<std::vector<double>>();
  result.added.values = json::to_metrics(json::field(x, "added"));
  for (auto& [key, state] : json::field(x, "callbacks").items())
    result.callbacks[key] = json::to_metrics(state);
  return result;
}

bool is_there(const fs::path& path) {
  return value_or_throw(look_up(path)).exists();
}

} // namespace

void write_progress(const fs::path& folder, const loop_progress& x) {
  auto path = text_file(folder);
  auto text = to_json(x);
  value_or_throw(check_size(path, text, max_bytes).and_then([&] {
    return write_new_file(path, text);
  }));
  tensor_map tensors = x.optimizer;
  for (auto& [name, value] : x.added.tensors)
    tensors[added_prefix + name] = value;
  save_safetensors(tensor_file(folder), tensors);
}

std::optional<loop_progress> read_progress(const fs::path& folder) {
  const auto path = text_file(folder);
  if (!is_there(path))
    return std::nullopt;
  auto result =
    value_or_throw(read_file(path, max_bytes).and_then([&](std::string text) {
      return json::read<loop_progress>(text, path.string(), from_json);
    }));
  for (auto& [name, value] : load_safetensors(tensor_file(folder))) {
    if (name.starts_with(optimizer_prefix))
      result.optimizer[name] = value;
    else
      result.added.tensors[name.substr(added_prefix.size())] = value;
  }
  return result;
}

void write_rank_progress(const fs::path& folder, int rank,
                         const rank_progress& x) {
  std::string logged;
  json::append(logged, x.logged);
  tensor_map tensors = x.random;
  tensors.insert(x.optimizer.begin(), x.optimizer.end());
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
      else if (name.starts_with(optimizer_prefix))
        result.optimizer[name] = value;
      else
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
