# frozen_string_literal: true

# A backend of Hiera for data files of the original tool: `%{lookup_array('KEY')}` and `%{lookup_array_first_element('KEY')}`
# as whole values give what its own backend gave. Hiera 5 has no way to add methods of interpolation.
#
# A key that is missing, and the first of an empty array, are not found; what is no array is an error.
Puppet::Functions.create_function(:'orchestrate::hiera_yaml') do
  dispatch :hiera_yaml do
    param 'String[1]', :key
    param 'Struct[{path => String[1]}]', :options
    param 'Puppet::LookupContext', :context
  end

  def hiera_yaml(key, options, context)
    path = options['path']
    data = context.cached_file_data(path) { |text| read(text, path) }
    context.not_found unless data.include?(key)
    value = data[key]
    method, wanted = old_interpolation(value)
    return context.interpolate(value) unless method

    # Hiera's own interpolation, because it sees when a lookup ends in itself. What is missing is an empty text to it.
    array = context.interpolate("%{alias('#{wanted}')}")
    context.not_found if array.nil? || array == ''
    raise Puppet::DataBinding::LookupError, "#{path}: #{key}: #{wanted} is no array" unless array.is_a?(Array)
    return array if method == 'lookup_array'

    array.empty? ? context.not_found : array.first
  end

  def read(text, path)
    found = Puppet::Util::Yaml.safe_load(text, [Symbol], path)
    found.is_a?(Hash) ? found.transform_keys(&:to_s) : {}
  rescue Puppet::Util::Yaml::YamlLoadError => e
    raise Puppet::DataBinding::LookupError, "orchestrate::hiera_yaml: #{e.message}"
  end

  def old_interpolation(value)
    return unless value.is_a?(String)

    found = /\A%\{\s*(lookup_array|lookup_array_first_element)\((['"])([^'"]+)\2\)\s*\}\z/.match(value)
    [found[1], found[3]] if found
  end
end
