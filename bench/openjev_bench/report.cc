#include "openjev_bench/report.h"

#include <cctype>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "openjev_bench/environment.h"

namespace openjev::bench {
namespace {

using Record = nlohmann::ordered_json;

constexpr const char* kNotAvailable = "-";

std::string fixed(double value, int decimals) {
  std::string text(64, '\0');
  const int length = std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  text.resize(length < 0 ? 0 : std::min(text.size() - 1, static_cast<std::size_t>(length)));
  return text;
}

std::string shown(const Cell& cell, int decimals) {
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&cell)) return fixed(*number, decimals);
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  return kNotAvailable;
}

Record value_of(const Cell& cell) {
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return *integer;
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  return nullptr;
}

// "median ms" -> "median_ms"
std::string key_of(const std::string& heading) {
  std::string out;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    out += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return out;
}

Record record_of(const Table& table) {
  Record out{{"title", table.title}, {"facts", Record::object()}, {"rows", Record::array()}};
  for (const auto& [name, text] : table.facts) out["facts"][key_of(name)] = text;
  for (const auto& cells : table.rows) {
    Record row = Record::object();
    for (std::size_t i = 0; i < cells.size(); ++i)
      row[key_of(table.columns[i].heading)] = value_of(cells[i]);
    out["rows"].push_back(std::move(row));
  }
  return out;
}

}  // namespace

void print_markdown(const Table& table, std::ostream& out) {
  out << "### " << table.title << "\n\n";
  for (const auto& [name, text] : table.facts) out << "- " << name << ": " << text << "\n";
  out << "\n|";
  for (const Column& column : table.columns) out << " " << column.heading << " |";
  out << "\n|";
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const bool text = !table.rows.empty() && std::holds_alternative<std::string>(table.rows[0][i]);
    out << (text ? " --- |" : " ---: |");
  }
  out << "\n";
  for (const auto& cells : table.rows) {
    out << "|";
    for (std::size_t i = 0; i < cells.size(); ++i)
      out << " " << shown(cells[i], table.columns[i].decimals) << " |";
    out << "\n";
  }
  out << "\n" << std::flush;
}

Table Report::begin(std::string title, std::vector<Column> columns, const Backend& backend) const {
  const Arguments& a = arguments_;
  const BackendOptions& o = a.backend;
  const ModelConfig config = model_config(a);
  const bool device = backend.name() != "cpu";
  const std::string entries =
      o.graph_entries == 0 ? "" : ", " + std::to_string(o.graph_entries) + " entries";
  return {.title = std::move(title),
          .columns = std::move(columns),
          .facts = {{"device", backend.name() + ": " + backend.describe()},
                    {"clocks before", clocks(backend, o.device_index)},
                    {"clocks after", ""},
                    {"graph mode", device ? o.graph_mode + entries : "none"},
                    {"matmul mode", device ? o.matmul_mode : "one"},
                    {"shape", a.shape},
                    {"layers", std::to_string(config.layers.size())},
                    {"vocabulary", std::to_string(config.vocab_size)},
                    {"seed", std::to_string(a.seed)},
                    {"version", version()},
                    {"commit", commit()}},
          .rows = {},
          .printed = true};
}

void Report::end(Table table, const Backend& backend) {
  for (auto& [name, text] : table.facts)
    if (name == "clocks after") text = clocks(backend, arguments_.backend.device_index);
  for (const auto& cells : table.rows)
    check(cells.size() == table.columns.size(), "table ", table.title, ": ", cells.size(),
          " cells for ", table.columns.size(), " columns");
  if (table.printed) print_markdown(table, std::cout);
  tables_.push_back(std::move(table));
}

void Report::write_json(const std::string& file) const {
  Record out{{"format", "openjev-bench/1"}, {"tables", Record::array()}};
  for (const Table& table : tables_) out["tables"].push_back(record_of(table));
  std::ofstream stream(file, std::ios::trunc);
  stream << out.dump(1, ' ', false, Record::error_handler_t::replace) << "\n";
  stream.close();
  if (!stream) fail(ErrorKind::kBadRequest, "--json ", file, ": cannot be written");
}

}  // namespace openjev::bench
