"""The search for settings of an algorithm that learn an env well."""
