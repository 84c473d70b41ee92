#include "table.hpp"

#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <ATen/Functions.h>

namespace troupe::internal::test {

namespace {

using nlohmann::json;

double number(const json& x) {
  if (!x.is_string())
    return x.get<double>();
  auto text = x.get<std::string>();
  return text == "nan"    ? NAN
         : text == "inf"  ? INFINITY
         : text == "-inf" ? -INFINITY
                          : throw std::runtime_error{text + " is not a number"};
}

at::ScalarType type(const std::string& name) {
  static const std::map<std::string, at::ScalarType> types = {
    {"f64", at::kDouble},    {"f32", at::kFloat}, {"f16", at::kHalf},
    {"bf16", at::kBFloat16}, {"i64", at::kLong},  {"i32", at::kInt}};
  return types.at(name);
}

at::Tensor tensor(const json& x) {
  std::vector<double> values;
  for (auto& value : x.at("values"))
    values.push_back(number(value));
  return at::tensor(values, at::kDouble)
    .view(x.at("shape").get<std::vector<std::int64_t>>())
    .to(type(x.at("type")));
}

std::vector<metric_batch> batches(const json& x) {
  std::vector<metric_batch> result;
  for (auto& batch : x) {
    auto& arguments = result.emplace_back();
    for (auto& argument : batch)
      arguments.push_back(tensor(argument));
  }
  return result;
}

/// What our metric is to say: the peer's value, unless it differs on purpose.
json expectation(const json& x) {
  return x.contains("ours") ? x.at("ours") : x.at("value");
}

std::vector<table_case> read(const std::string& path) {
  std::ifstream file{path};
  if (!file)
    throw std::runtime_error{"cannot read " + path};
  auto table = json::parse(file);
  std::vector<table_case> result;
  for (auto& x : table.at("cases")) {
    auto& next = result.emplace_back();
    next.name = x.at("name");
    next.metric = x.at("metric");
    next.options = x.at("options");
    next.batches = batches(table.at("datasets").at(x.at("data")));
    for (auto& value : x.at("forward"))
      next.forward.push_back(expectation(value));
    next.value = expectation(x);
  }
  return result;
}

void flatten(const json& x, std::vector<double>& result) {
  if (!x.is_array())
    return result.push_back(number(x));
  for (auto& item : x)
    flatten(item, result);
}

std::vector<std::int64_t> shape(const json& x) {
  if (!x.is_array())
    return {};
  auto result = x.empty() ? std::vector<std::int64_t>{} : shape(x.front());
  result.insert(result.begin(), static_cast<std::int64_t>(x.size()));
  return result;
}

bool close(double actual, double expected) {
  if (std::isnan(expected) || std::isinf(expected))
    return std::isnan(expected) ? std::isnan(actual) : actual == expected;
  return std::abs(actual - expected)
         <= std::max(1e-9, 1e-6 * std::abs(expected));
}

} // namespace

const std::vector<table_case>& metric_table() {
  static const auto result = read(TROUPE_TEST_DATA "/torchmetrics.json");
  return result;
}

std::string difference(const at::Tensor& actual, const json& expected) {
  std::vector<double> wanted;
  flatten(expected, wanted);
  auto flat = actual.to(at::kDouble).contiguous();
  const auto* values = flat.const_data_ptr<double>();
  auto equal = actual.sizes() == at::IntArrayRef{shape(expected)};
  for (std::size_t i = 0; equal && i < wanted.size(); ++i)
    equal = close(values[i], wanted[i]);
  if (equal)
    return {};
  std::ostringstream result;
  result.precision(12);
  result << "expected " << expected.dump() << ", got shape " << actual.sizes()
         << ':';
  for (std::int64_t i = 0; i < flat.numel(); ++i)
    result << ' ' << values[i];
  return result.str();
}

} // namespace troupe::internal::test
